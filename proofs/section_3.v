(** * Section 3 and Appendix B: linear heads *)

From mathcomp Require Import all_ssreflect all_algebra.
From hmm Require Import ordered_fields definitions messages left_inverse.

Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.

Import GRing.Theory Num.Theory Order.Theory.
Local Open Scope ring_scope.

Section Section3.

Variables (R : realFieldType) (H X : finType) (M : hmm R H X).
Notation A := (transition M).
Notation W := (emission M).

(** P[H_1 = h] *)
Notation marginal_1 := (marginal M 1).

Definition evidence n (x : text X n) : n.-tuple (embedding R H) := map_tuple (embed M) x.

Lemma embed_ge0 token h : 0 <= embed M token h.
Proof. by case: token => [x|] /=; [exact: emission_ge0 | exact: ler01]. Qed.

Lemma back_ge0 n (x : text X n) h : 0 <= back M (evidence x) h.
Proof.
rewrite /=; elim: (tval x) h => [|token y IH] h /=; first exact: ler01.
apply: sumr_ge0 => h' _; rewrite mulr_ge0 // mulr_ge0 ?transition_ge0 //; exact: embed_ge0.
Qed.

(** The joint probability of the first hidden state and a text. *)
Lemma joint_first n (x : text X n) h :
  joint M x ord0 h = initial M h * back M (evidence x) h.
Proof. by rewrite /joint joint_weighted weighted_first. Qed.

(** P[X = x] = sum over h of P[H_k = h, X = x], for every k. *)
Lemma Pr_e_joint n (e : n.-tuple (embedding R H)) k : Pr_e M e = \sum_h joint_e M e k h.
Proof.
rewrite /Pr_e /joint_e [RHS]exchange_big /=; apply: eq_bigr => h0 _.
rewrite [RHS](exchange_big_dep predT) //=; apply: eq_bigr => p _.
by rewrite (big_pred1 (tnth [tuple of h0 :: p] k)) // => h; rewrite eq_sym.
Qed.

Lemma Pr_joint n (x : text X n) k : Pr M x = \sum_h joint M x k h.
Proof. exact: Pr_e_joint. Qed.

Lemma put_first n (x : text X n) token token' :
  put [tuple of token' :: x] ord0 token = [tuple of token :: x].
Proof.
apply: eq_from_tnth => i; rewrite tnth_mktuple.
case: (unliftP ord0 i) => [j ->|->].
  by rewrite eq_sym (negPf (neq_lift _ _)) !tnthS.
by rewrite eqxx tnth0.
Qed.

(** What follows a mask or a token in front of a text. *)
Lemma Pr_in_front n (x : text X n) token :
  Pr M [tuple of token :: x] = \sum_h embed M token h * marginal_1 h * back M (evidence x) h.
Proof.
rewrite (Pr_joint _ (lift ord0 ord0)) /joint; apply: eq_bigr => h _.
rewrite joint_weighted.
have -> : map_tuple (embed M) [tuple of token :: x] = [tuple of embed M token :: evidence x].
  by apply: val_inj.
by rewrite weighted_later weighted_first (mulrC (step _ _ _)).
Qed.

(** ** What Assumption 3.2 is needed for *)

(** H_1 can be in every state in which H_0 can be. *)
Definition reaches_the_start : Prop := forall h, initial M h != 0 -> marginal_1 h != 0.

(** Masks in front of a text move the states on. *)
Lemma weighted_masks i k a n (x : text X n) h : a =1 marginal M k ->
  weighted M a (evidence [tuple of nseq i (mask X) ++ x]) (inord i) h = marginal M (i + k) h * back M (evidence x) h.
Proof.
elim: i k a h => [|i IH] k a h ak.
  have -> : inord 0 = ord0 :> 'I_(0 + n).+1 by apply: val_inj; rewrite /= inordK.
  by rewrite weighted_first ak.
have -> : evidence [tuple of nseq i.+1 (mask X) ++ x] =
    [tuple of embed M (mask X) :: evidence [tuple of nseq i (mask X) ++ x]] by apply: val_inj.
have -> : inord i.+1 = lift ord0 (inord i) :> 'I_(i.+1 + n).+1.
  by apply: val_inj; rewrite /= inordK ?ltnS ?leq_addr // inordK ?ltnS ?leq_addr.
rewrite weighted_later (IH k.+1) ?addnS // => h' /=.
by rewrite mulr1; apply: eq_bigr => h0 _; rewrite ak.
Qed.

(** Claim B.1: P[H_0 | X_1.. = x] and P[H_i | X_{i+1}.. = x] differ by a factor for each state, P[H_i] / P[H_0], and
    one for the text. The joint probabilities are compared, and both are sums over paths. The text stands after i masks.
    The chain need not be ergodic, and i and the length of the text may also be 0. *)
Lemma claim_B_1 i n (x : text X n) h :
  joint M [tuple of nseq i (mask X) ++ x] (inord i) h * initial M h = marginal M i h * joint M x ord0 h.
Proof.
rewrite joint_first /joint joint_weighted.
by rewrite (weighted_masks _ (k := 0) (a := initial M)) // addn0 mulrAC mulrA.
Qed.

Lemma marginal_1_ge0 h : 0 <= marginal_1 h.
Proof. by apply: sumr_ge0 => h0 _; rewrite mulr_ge0 ?transition_ge0 ?initial_ge0. Qed.

(** G at a mask in front of a text. *)
Lemma G_in_front n (x : text X n) w :
  G M [tuple of mask X :: x] ord0 w =
  (\sum_h W w h * marginal_1 h * back M (evidence x) h) / Pr M [tuple of mask X :: x].
Proof. by rewrite /G !put_first Pr_in_front. Qed.

Lemma mask_possible n (x : text X n) : reaches_the_start ->
  0 < Pr M x -> 0 < Pr M [tuple of mask X :: x].
Proof.
move=> reaches possible.
have ge0 h : 0 <= embed M (mask X) h * marginal_1 h * back M (evidence x) h.
  by rewrite !mulr_ge0 ?embed_ge0 ?marginal_1_ge0 ?back_ge0.
rewrite lt_neqAle eq_sym Pr_in_front sumr_ge0 ?andbT //; apply/eqP => sum0.
suff eq0 : Pr M x = 0 by rewrite eq0 ltxx in possible.
rewrite (Pr_joint _ ord0) big1 // => h _; rewrite joint_first.
have := psumr_eq0P (fun i _ => ge0 i) sum0 => /(_ h isT) /eqP; rewrite /= mul1r.
rewrite mulf_eq0; case: (eqVneq (initial M h) 0) => [->|/reaches/negPf ->]; first by rewrite mul0r.
by move=> /= /eqP ->; rewrite mulr0.
Qed.

(** The score of a label, up to a positive factor. *)
Lemma label_joint n (x : text X n) mu : 0 < Pr M x ->
  label M mu x = (0 <= \sum_h mu h * joint M x ord0 h).
Proof.
move=> possible; rewrite /label.
have -> : \sum_h mu h * posterior M x ord0 h = (\sum_h mu h * joint M x ord0 h) / Pr M x.
  by rewrite big_distrl /=; apply: eq_bigr => h _; rewrite /posterior mulrA.
by rewrite pmulr_lge0 ?invr_gt0.
Qed.

(** Theorem 3.3 with a weaker assumption: it is enough that H_1 can be wherever H_0 can be. *)
Theorem theorem_3_3_stronger : assumption_3_1 M -> reaches_the_start ->
  forall mu : H -> R, exists b : X -> R,
  forall n (x : text X n), 0 < Pr M x ->
  label M mu x = (0 <= \sum_w b w * G M [tuple of mask X :: x] ord0 w).
Proof.
move=> independent reaches mu.
have [b bP] := left_inverse independent (fun h => mu h * (initial M h / marginal_1 h)).
exists b => n x possible; rewrite label_joint //.
have front_gt0 := mask_possible reaches possible.
have -> : \sum_w b w * G M [tuple of mask X :: x] ord0 w =
    (\sum_h mu h * joint M x ord0 h) / Pr M [tuple of mask X :: x].
  rewrite (eq_bigr (fun w => \sum_h (b w * W w h) * (marginal_1 h * back M (evidence x) h)
      / Pr M [tuple of mask X :: x])); last first.
    move=> w _; rewrite G_in_front mulrA big_distrr big_distrl /=.
    by apply: eq_bigr => h _; rewrite !mulrA.
  rewrite exchange_big big_distrl /=; apply: eq_bigr => h _.
  rewrite -big_distrl -big_distrl /= bP // joint_first; congr (_ / _).
  have [start0|start] := eqVneq (initial M h) 0; first by rewrite start0 !(mul0r, mulr0).
  rewrite -!mulrA; congr (_ * (_ * _)).
  by rewrite mulrA mulVf ?mul1r //; exact: reaches.
by rewrite pmulr_lge0 ?invr_gt0.
Qed.

(** In a regular chain, H_1 can be in every state. *)
Lemma regular_marginal : assumption_3_2 M -> forall h, 0 < marginal_1 h.
Proof.
move=> [[k reached] positive] h'.
have [h1 moves] : exists h1, 0 < A h' h1.
  case: k reached => [|k] reached.
    exists h'.
    have alone h : h = h' by have := reached h' h; rewrite /=; case: eqP => // _; rewrite ltxx.
    have := transition_sums_to_1 M h'; rewrite (bigD1 h') //= big1 ?addr0 => [->|h]; first exact: ltr01.
    by rewrite (alone h) eqxx.
  have := reached h' h' => /=; case: (pickP (fun h1 => 0 < A h' h1)) => [h1 moves _|none]; first by exists h1.
  rewrite big1 ?ltxx // => h1 _; have := none h1; rewrite lt_neqAle transition_ge0 andbT eq_sym.
  by move=> /negbFE/eqP ->; rewrite mul0r.
rewrite /= (bigD1 h1) //= lt_sum ?mulr_gt0 // sumr_ge0 // => h _.
by rewrite mulr_ge0 ?transition_ge0 ?initial_ge0.
Qed.

(** Theorem 3.3: one linear head gives every text that can occur its label. *)
Theorem theorem_3_3 : assumption_3_1 M -> assumption_3_2 M ->
  forall mu : H -> R, exists b : X -> R,
  forall n (x : text X n), 0 < Pr M x ->
  label M mu x = (0 <= \sum_w b w * G M [tuple of mask X :: x] ord0 w).
Proof.
move=> independent regular; apply: theorem_3_3_stronger => // h _.
exact: lt0r_neq0 (regular_marginal regular h).
Qed.

End Section3.

Section Proposition34.

(** Proposition 3.4, for random variables u, v, z on a finite space with the weights p. *)
Variables (R : realFieldType) (Omega U V Z : finType) (p : Omega -> R).
Variables (u : Omega -> U) (v : Omega -> V) (z : Omega -> Z).
Hypothesis p_ge0 : forall o, 0 <= p o.

Definition P (event : pred Omega) : R := \sum_(o | event o) p o.

(** U and V are independent, given Z. *)
Definition independent_given : Prop := forall a b c,
  P (fun o => [&& u o == a, v o == b & z o == c]) * P (fun o => z o == c) =
  P (fun o => (u o == a) && (z o == c)) * P (fun o => (v o == b) && (z o == c)).

Definition U_given_V a b : R := P (fun o => (u o == a) && (v o == b)) / P (fun o => v o == b).
Definition U_given_Z a c : R := P (fun o => (u o == a) && (z o == c)) / P (fun o => z o == c).
Definition Z_given_V c b : R := P (fun o => (v o == b) && (z o == c)) / P (fun o => v o == b).

Lemma P_sum (event : pred Omega) : P event = \sum_c P (fun o => event o && (z o == c)).
Proof. by rewrite /P (partition_big z predT). Qed.

Proposition proposition_3_4 : independent_given ->
  forall a b, U_given_V a b = \sum_c U_given_Z a c * Z_given_V c b.
Proof.
move=> independent a b; rewrite /U_given_V P_sum big_distrl /=; apply: eq_bigr => c _.
rewrite /Z_given_V mulrA; congr (_ / _).
have -> : P (fun o => (u o == a) && (v o == b) && (z o == c)) = P (fun o => [&& u o == a, v o == b & z o == c]).
  by apply: eq_bigl => o; rewrite andbA.
have [zero|nonzero] := eqVneq (P (fun o => z o == c)) 0; last first.
  by apply: (mulIf nonzero); rewrite independent /U_given_Z [RHS]mulrAC divfK.
rewrite /U_given_Z zero invr0 mulr0 mul0r; apply: big1 => o /and3P [_ _ z_c].
by apply: (psumr_eq0P (fun i _ => p_ge0 i) zero).
Qed.

(** A left inverse of P[U | Z] undoes it. *)
Proposition proposition_3_4_inverse (L : Z -> U -> R) : independent_given ->
  (forall c c', \sum_a L c a * U_given_Z a c' = (c == c')%:R) ->
  forall c b, Z_given_V c b = \sum_a L c a * U_given_V a b.
Proof.
move=> independent inverse c b.
rewrite (eq_bigr (fun a => \sum_c' L c a * U_given_Z a c' * Z_given_V c' b)); last first.
  by move=> a _; rewrite proposition_3_4 // big_distrr /=; apply: eq_bigr => c' _; rewrite mulrA.
rewrite exchange_big /= (bigD1 c) //= [X in _ + X]big1 ?addr0 => [|c' ne].
  by rewrite -big_distrl /= inverse eqxx mul1r.
by rewrite -big_distrl /= inverse eq_sym (negPf ne) mul0r.
Qed.

End Proposition34.
