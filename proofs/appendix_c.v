(** * Appendix C: embeddings, and a prompt with a linear head *)

From mathcomp Require Import all_ssreflect all_algebra ring.
From hmm Require Import ordered_fields definitions messages left_inverse section_3.

Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.

Import GRing.Theory Num.Theory Order.Theory.
Local Open Scope ring_scope.

Section AppendixC.

Variables (R : realFieldType) (H X : finType) (M : hmm R H X).
Notation A := (transition M).
Notation W := (emission M).
Notation embedding := (embedding R H).

(** The message from the right is P[H_k] times the probability of what comes after. *)
Lemma marginal_ge0 k h : 0 <= marginal M k h.
Proof.
elim: k h => [|k IH] h; first exact: initial_ge0.
by apply: sumr_ge0 => h' _; rewrite mulr_ge0 ?transition_ge0 ?IH.
Qed.

(** A state that cannot be reached is not reached from a state that can be. *)
Lemma unreached k h h' : marginal M k.+1 h' = 0 -> A h' h * marginal M k h = 0.
Proof.
move=> zero; have ge0 h1 : 0 <= A h' h1 * marginal M k h1.
  by rewrite mulr_ge0 ?transition_ge0 ?marginal_ge0.
exact: (psumr_eq0P (fun i _ => ge0 i) zero).
Qed.

Lemma from_right_back k (e : seq embedding) h :
  from_right M k e h = marginal M k h * back M e h.
Proof.
elim: e k h => [|v e IH] k h /=; first by rewrite mulr1.
rewrite big_distrr /=; apply: eq_bigr => h' _; rewrite IH /backwards.
have [zero|nonzero] := eqVneq (marginal M k.+1 h') 0.
  by rewrite -[_ * _ * v h']mulrA -!mulrA mulrCA !mulrA [marginal M k h * _]mulrC (unreached h zero) !mul0r.
rewrite -[A h' h * _ / _ * _]mulrA.
have -> : (marginal M k.+1 h')^-1 * (marginal M k.+1 h' * back M e h' * v h') = back M e h' * v h'.
  by rewrite !mulrA mulVf // mul1r.
ring.
Qed.

(** The left message and the weights of the states after the evidence. *)
Fixpoint fwd (a : H -> R) (e : seq embedding) : H -> R :=
  if e is v :: e' then fwd (fun h' => step M a h' * v h') e' else a.

Lemma from_left_fwd a (e : seq embedding) h :
  from_left M (step M a) e h = step M (fwd a e) h.
Proof. by elim: e a h => [|v e IH] a h //=; rewrite -IH. Qed.

Lemma weighted_fwd a n (e : n.-tuple embedding) (k : 'I_n.+1) h :
  weighted M a e k h = fwd a (take k e) h * back M (drop k e) h.
Proof.
elim: n a e k h => [|n IH] a e k h.
  by rewrite (ord1 k) weighted_first take0 drop0.
case: (unliftP ord0 k) => [j ->|->]; last by rewrite weighted_first take0 drop0.
by rewrite (tuple_eta e) weighted_later IH.
Qed.

Lemma from_left_unreached k a (e : seq embedding) h :
  (forall h, marginal M k.+1 h = 0 -> a h = 0) ->
  marginal M (k.+1 + size e) h = 0 -> from_left M a e h = 0.
Proof.
elim: e k a h => [|v e IH] k a h az; first by rewrite [size _]/= addn0; exact: az.
rewrite [size _]/= addnS -addSn; apply: IH => h' zero.
rewrite big1 // => h1 _.
have := unreached h1 zero => /eqP; rewrite mulf_eq0 => /orP [/eqP ->|/eqP/az ->]; first by rewrite mul0r.
by rewrite mul0r mulr0.
Qed.

(** The aggregated message, in one formula for every position. *)
Lemma tau_formula n (e : n.-tuple embedding) (i : 'I_n) h :
  tau M e i h = from_left M (marginal M 1) (take i e) h * back M (drop i.+1 e) h.
Proof.
rewrite /tau from_right_back.
have size_left : size (take i e) = i by rewrite size_takel // size_tuple ltnW.
have left0 : marginal M i.+1 h = 0 -> from_left M (marginal M 1) (take i e) h = 0.
  move=> zero; apply: (@from_left_unreached 0) => //.
  by rewrite size_left add1n.
case: ifP => [/eqP first|_]; first by rewrite first take0.
case: ifP => [/eqP last|_].
  by rewrite last drop_oversize ?size_tuple // mulr1.
have [zero|nonzero] := eqVneq (marginal M i.+1 h) 0.
  by rewrite (left0 zero) !(mulr0, mul0r).
by field.
Qed.

Definition one : embedding := fun=> 1.

(** The embeddings with another one at position i. *)
Definition replace n (e : n.-tuple embedding) (i : 'I_n) (v : embedding) : n.-tuple embedding :=
  [tuple if j == i then v else tnth e j | j < n].

Lemma replace_cut n (e : n.-tuple embedding) (i : 'I_n) v :
  tval (replace e i v) = take i e ++ v :: drop i.+1 e.
Proof.
apply: (@eq_from_nth _ one) => [|j].
  rewrite size_tuple size_cat /= size_takel ?size_drop size_tuple; last exact: ltnW.
  by rewrite -addSnnS subnKC.
rewrite size_tuple => j_n; pose k := Ordinal j_n.
have -> : nth one (replace e i v) j = tnth (replace e i v) k by rewrite (tnth_nth one).
rewrite tnth_mktuple nth_cat size_takel ?size_tuple; last exact: ltnW.
have [j_i|i_j|eq_ij] := ltngtP j i.
- by rewrite -val_eqE /= (ltn_eqF j_i) nth_take // (tnth_nth one).
- rewrite -val_eqE /= (gtn_eqF i_j) (tnth_nth one) /=.
  by rewrite -(subnKC i_j) addSn subSn ?leq_addr //= addKn nth_drop addSn.
by rewrite -val_eqE /= eq_ij eqxx subnn.
Qed.

(** The joint probability of the state at a position, of what stands there, and of what stands elsewhere. *)
Lemma joint_replace n (e : n.-tuple embedding) (i : 'I_n) v h :
  joint_e M (replace e i v) (lift ord0 i) h = tau M e i h * v h.
Proof.
rewrite joint_weighted weighted_fwd tau_formula replace_cut.
have size_left : size (take i e) = i by rewrite size_takel // size_tuple ltnW.
have -> : (lift ord0 i : nat) = i.+1 by [].
rewrite take_cat drop_cat size_left ltnNge leqW //= subSn // subnn /= take0 drop0.
have fwd_cat a : fwd a (take i e ++ [:: v]) h = step M (fwd a (take i e)) h * v h.
  by elim: (take i e) a => [|v' e' IH] a //=.
by rewrite fwd_cat -from_left_fwd mulrAC.
Qed.

(** The aggregated message is the joint probability of the state and of what stands elsewhere. The embeddings may be any
    vectors. *)
Lemma tau_joint n (e : n.-tuple embedding) (i : 'I_n) h :
  tau M e i h = joint_e M (replace e i one) (lift ord0 i) h.
Proof. by rewrite joint_replace mulr1. Qed.

(** Lemma C.1. A fake token stands in front of a gap and the text, and u is its emission. The entries of u may be any
    numbers. If they lie between 0 and 1, the sums over paths are probabilities. The first part is (C.2), for every
    position. The next two say that the prediction is the conditional probability of the token w, given what stands
    elsewhere, and that it is W times the conditional probabilities of the states. The paper says so of the positions
    behind the prompt. At the prompt's own position it holds, too, if w is emitted there as it is elsewhere. The last
    part says that the prediction is 0 where what stands elsewhere is impossible. *)
Lemma lemma_C_1 n u (x : text X n) (i : 'I_n.+2) :
  let e := prompted M u x in
  let rest := replace e i one in
  [/\ forall h, tau M e i h = joint_e M rest (lift ord0 i) h,
      Pr_e M rest != 0 -> forall w, Gbar M e i w = Pr_e M (replace e i (W w)) / Pr_e M rest,
      Pr_e M rest != 0 -> forall w,
        Gbar M e i w = \sum_h W w h * (joint_e M rest (lift ord0 i) h / Pr_e M rest) &
      Pr_e M rest = 0 -> forall w, Gbar M e i w = 0].
Proof.
move=> e rest.
have norm : \sum_h tau M e i h = Pr_e M rest.
  by rewrite (Pr_e_joint _ _ (lift ord0 i)); apply: eq_bigr => h _; exact: tau_joint.
have mixed : Pr_e M rest != 0 -> forall w,
    Gbar M e i w = \sum_h W w h * (joint_e M rest (lift ord0 i) h / Pr_e M rest).
  by move=> /negPf possible w; rewrite /Gbar norm possible; apply: eq_bigr => h _; rewrite tau_joint.
split=> [h|possible w|//|zero w]; first exact: tau_joint.
  rewrite mixed // (Pr_e_joint _ (replace _ _ (W w)) (lift ord0 i)) big_distrl /=; apply: eq_bigr => h _.
  by rewrite joint_replace tau_joint mulrA (mulrC (W w h)).
by rewrite /Gbar norm zero eqxx.
Qed.

Lemma evidence_put n (x : text X n) (i : 'I_n) token :
  evidence M (put x i token) = replace (evidence M x) i (embed M token).
Proof. by apply: eq_from_tnth => j; rewrite !(tnth_mktuple, tnth_map); case: (j == i). Qed.

Lemma Pr_put n (x : text X n) (i : 'I_n) token :
  Pr M (put x i token) = \sum_h tau M (evidence M x) i h * embed M token h.
Proof.
rewrite (Pr_joint M _ (lift ord0 i)); apply: eq_bigr => h _.
by rewrite /joint -joint_replace -evidence_put.
Qed.

(** On proper embeddings, Gbar is G. *)
Lemma Gbar_proper n (x : text X n) (i : 'I_n) w : 0 < Pr M (put x i (mask X)) ->
  Gbar M (evidence M x) i w = G M x i w.
Proof.
have norm : Pr M (put x i (mask X)) = \sum_h tau M (evidence M x) i h.
  by rewrite Pr_put; apply: eq_bigr => h _; rewrite mulr1.
rewrite /Gbar /G norm => /lt0r_neq0/negPf ->; rewrite Pr_put big_distrl /=.
by apply: eq_bigr => h _; rewrite mulrA (mulrC (W w h)).
Qed.

(** ** Theorem 3.6 *)

Local Arguments marginal : simpl never.

(** c = A (u * P[H_1]): what a prompt makes of the state at the gap. *)
Definition conditioned (u : embedding) : H -> R := step M (fun h => marginal M 1 h * u h).

Lemma tau_gap n u (x : text X n) h :
  tau M (prompted M u x) (gap n) h = conditioned u h * back M (evidence M x) h.
Proof. by rewrite tau_formula /= drop0. Qed.

(** Lemma C.2: prompt and text change the belief at the gap each by a factor for each state. *)
Lemma lemma_C_2 n u (x : text X n) h :
  tau M (prompted M u x) (gap n) h * initial M h = conditioned u h * joint M x ord0 h.
Proof. by rewrite tau_gap joint_first mulrAC -mulrA. Qed.

Theorem theorem_3_6 mu (D B : {pred H}) : assumption_3_5 M mu D B ->
  (forall h, h \in B -> marginal M 1 h != 0) ->
  exists u : embedding, (forall h, 0 <= u h <= 1) /\
  exists b : X -> R, forall n (x : text X n), 0 < Pr M x ->
  label M mu x = (0 <= \sum_w b w * Gbar M (prompted M u x) (gap n) w).
Proof.
move=> [independent weighs reached] possible_B.
pose u : embedding := fun h => (h \in B)%:R.
exists u; split=> [h|]; first by rewrite /u; case: (h \in B); rewrite !(lexx, ler01).
pose c := conditioned u.
have c_ge0 h : 0 <= c h.
  by apply: sumr_ge0 => h0 _; rewrite mulr_ge0 ?transition_ge0 // mulr_ge0 ?ler0n // marginal_ge0.
have c_outside h : h \notin D -> c h = 0.
  move=> notin; rewrite /c /conditioned /step big1 // => h0 _; rewrite /u.
  case: (boolP (h0 \in B)) => [inB|_]; last by rewrite !mulr0.
  have [->|nonzero] := eqVneq (A h h0) 0; first by rewrite mul0r.
  by case/negP: notin; apply/reached; exists h0.
have c_inside h : h \in D -> c h != 0.
  case/reached=> h0 inB nonzero; apply: lt0r_neq0.
  rewrite /c /conditioned /step (bigD1 h0) //= lt_sum //.
    rewrite /u inB mulr1 mulr_gt0 // lt_neqAle eq_sym ?nonzero ?transition_ge0 //.
    by rewrite (possible_B _ inB) marginal_ge0.
  by apply: sumr_ge0 => h1 _; rewrite mulr_ge0 ?transition_ge0 // mulr_ge0 ?ler0n // marginal_ge0.
have [b bP] := left_inverse independent (fun h => mu h * (initial M h / c h)).
exists b => n x possible; rewrite label_joint //.
set norm := \sum_h tau M (prompted M u x) (gap n) h.
have norm_ge0 : 0 <= norm.
  by apply: sumr_ge0 => h _; rewrite tau_gap mulr_ge0 ?c_ge0 ?back_ge0.
have term h : mu h * joint M x ord0 h = mu h * (initial M h / c h) * tau M (prompted M u x) (gap n) h.
  rewrite tau_gap joint_first -/c.
  have [->|/weighs/c_inside nonzero] := eqVneq (mu h) 0; first by rewrite !mul0r.
  rewrite -!mulrA; congr (_ * (_ * _)); by rewrite mulrA mulVf ?mul1r.
have score : \sum_w b w * Gbar M (prompted M u x) (gap n) w = (\sum_h mu h * joint M x ord0 h) / norm.
  rewrite /Gbar -/norm; case: eqP => [->|_].
    by rewrite invr0 mulr0 big1 // => w _; rewrite mulr0.
  rewrite (eq_bigr (fun w => \sum_h b w * W w h * (tau M (prompted M u x) (gap n) h / norm))); last first.
    by move=> w _; rewrite big_distrr /=; apply: eq_bigr => h _; rewrite mulrA.
  rewrite exchange_big big_distrl /=; apply: eq_bigr => h _.
  rewrite -big_distrl /= term -[RHS]mulrA.
  case: (boolP (h \in D)) => [inD|notin]; first by rewrite bP.
  by rewrite tau_gap -/c (c_outside _ notin) !(mul0r, mulr0).
rewrite score; have [zero|nonzero] := eqVneq norm 0.
  rewrite zero invr0 mulr0 lexx big1 ?lexx // => h _; rewrite term.
  have ge0 h1 : 0 <= tau M (prompted M u x) (gap n) h1 by rewrite tau_gap mulr_ge0 ?c_ge0 ?back_ge0.
  by rewrite (psumr_eq0P (fun i _ => ge0 i) zero) ?mulr0.
by rewrite pmulr_lge0 // invr_gt0 lt_neqAle eq_sym nonzero.
Qed.

End AppendixC.
