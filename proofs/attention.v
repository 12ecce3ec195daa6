(** * What an attention head reads from predictions in a model with a memory *)

From mathcomp Require Import all_ssreflect all_algebra ring.
From hmm Require Import ordered_fields definitions messages left_inverse section_3 appendix_c.

Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.

Import GRing.Theory Num.Theory Order.Theory.
Local Open Scope ring_scope.

Section Attention.

Variables (R : realFieldType) (N : nat) (V S X : finType) (M : memory_hmm R N V S X).
Notation state := (state N S).
Notation memory := (memory N V).
Notation W := (words M).

Variable omega : memory -> R.
Hypothesis omega_ge0 : forall m, 0 <= omega m.

Lemma by_value (j : 'I_N) (F : memory -> R) : \sum_m F m = \sum_v \sum_(m : memory | m j == v) F m.
Proof. by rewrite (partition_big (fun m : memory => m j) predT). Qed.

Lemma Pr_put_joint (m : memory) n (x : text X n) (i : 'I_n) token :
  Pr (given M m) (put x i token) =
  \sum_h joint (given M m) (put x i (mask X)) (lift ord0 i) h * embed (given M m) token h.
Proof.
rewrite Pr_put; apply: eq_bigr => h _; congr (_ * _).
by rewrite tau_joint /joint -/(evidence _ _) evidence_put.
Qed.

Lemma embed_given (m : memory) token h : embed (given M m) token h = membed M token (m h.1) h.
Proof. by case: token. Qed.

(** Proposition D.1, with joint probabilities in place of conditional ones on both sides. *)
Lemma proposition_D_1 n (x : text X n) (i : 'I_n) token :
  mPr M omega (put x i token) = \sum_h \sum_v membed M token v h * word_joint M omega x i v h.
Proof.
rewrite /mPr.
transitivity (\sum_h \sum_m omega m *
    (joint (given M m) (put x i (mask X)) (lift ord0 i) h * membed M token (m h.1) h)).
  rewrite exchange_big; apply: eq_bigr => m _; rewrite Pr_put_joint big_distrr /=.
  by apply: eq_bigr => h _; rewrite embed_given.
apply: eq_bigr => h _; rewrite (by_value h.1); apply: eq_bigr => v _.
rewrite /word_joint big_distrr /=; apply: eq_bigr => m /eqP ->.
by rewrite mulrA mulrC.
Qed.

Lemma joint_ge0 (m : memory) n (x : text X n) (k : 'I_n.+1) h : 0 <= joint (given M m) x k h.
Proof.
apply: sumr_ge0 => h0 _; apply: sumr_ge0 => p _; rewrite !mulr_ge0 ?initial_ge0 //.
  by apply: prodr_ge0 => i _; exact: transition_ge0.
by apply: prodr_ge0 => i _; rewrite tnth_map; exact: embed_ge0.
Qed.

Lemma word_joint_ge0 n (x : text X n) i v h : 0 <= word_joint M omega x i v h.
Proof. by apply: sumr_ge0 => m _; rewrite mulr_ge0 ?omega_ge0 ?joint_ge0. Qed.

Lemma Pr_ge0 (m : memory) n (x : text X n) : 0 <= Pr (given M m) x.
Proof. by rewrite (Pr_joint _ _ ord0) sumr_ge0 // => h _; exact: joint_ge0. Qed.

Variables (j : 'I_N) (D : {pred S}).
Notation R_ := (recoverable j D).

(** At a sure position, the memory and the text have the joint probability that the word there gives. *)
Lemma cell_joint_sure n (x : text X n) (i : 'I_n) v : sure M omega j D x i ->
  cell_joint M omega x j v = \sum_(h | R_ h) membed M (tnth x i) v h * word_joint M omega x i v h.
Proof.
move=> /forallP is_sure.
have same : put x i (tnth x i) = x.
  by apply: eq_from_tnth => i'; rewrite tnth_mktuple; case: eqP => [->|].
have unsure h (m : memory) : ~~ R_ h -> omega m * joint (given M m) (put x i (mask X)) (lift ord0 i) h = 0.
  move=> not_r; have := is_sure h; rewrite (negPf not_r) implybF negbK => /eqP zero.
  have ge0 v' : 0 <= word_joint M omega x i v' h by exact: word_joint_ge0.
  have word0 : word_joint M omega x i (m h.1) h = 0 by exact: (psumr_eq0P (fun v' _ => ge0 v') zero).
  by apply: (psumr_eq0P _ word0) => // m' _; rewrite mulr_ge0 ?omega_ge0 ?joint_ge0.
rewrite /cell_joint.
transitivity (\sum_(m : memory | m j == v) \sum_(h | R_ h)
    omega m * joint (given M m) (put x i (mask X)) (lift ord0 i) h * membed M (tnth x i) v h).
  apply: eq_bigr => m /eqP mj; rewrite -{1}same Pr_put_joint big_distrr /=.
  rewrite (bigID R_) /= [X in _ + X]big1 ?addr0 => [|h not_r]; last first.
    by rewrite mulrA unsure // mul0r.
  by apply: eq_bigr => h /andP [/eqP hj _]; rewrite embed_given hj mj mulrA.
rewrite exchange_big /=; apply: eq_bigr => h /andP [/eqP hj _].
by rewrite /word_joint hj big_distrr /=; apply: eq_bigr => m _; rewrite mulrC.
Qed.

(** For Claims D.3 and D.10. Any weighting of the recoverable columns is a score of W, as far as pairs in P go. *)
Lemma recoverable_score (P : V -> state -> bool) (assumed : separated M P j D) (t : V -> state -> R) :
  (forall v h, ~~ R_ h -> t v h = 0) ->
  exists b : X -> R, forall v h, P v h -> \sum_w b w * W w v h = t v h.
Proof.
move=> supported.
pose only v h (r : R) := if P v h then r else 0.
have [|b bP] := @score_exists R [finite V * state] X
    (fun w p => only p.1 p.2 (W w p.1 p.2)) (fun p => only p.1 p.2 (t p.1 p.2)).
  move=> c zero.
  pose inside v h := if R_ h && P v h then c (v, h) else 0.
  pose outside v h := if R_ h || ~~ P v h then 0 else - c (v, h).
  have zero_pairs w : \sum_h \sum_v only v h (W w v h) * c (v, h) = 0.
    by rewrite exchange_big pair_big -[RHS](zero w); apply: eq_bigr => -[v h].
  have inside0 : forall v h, inside v h = 0.
    apply: (independent_recoverable assumed) => [v h|]; first by rewrite /inside => /negPf ->.
    apply: (disjoint_spans assumed) (outside) _ _ _ => [v h|v h|w].
    - by rewrite /inside => /negPf ->.
    - by rewrite /outside => ->.
    apply/eqP; rewrite /mixture -subr_eq0 -sumrB; apply/eqP; rewrite -[RHS](zero_pairs w).
    apply: eq_bigr => h _; rewrite -sumrB; apply: eq_bigr => v _; rewrite /inside /outside /only.
    by case: (R_ h); case: (P v h); rewrite /= ?(mulr0, mul0r, subr0, sub0r, mulrN, opprK).
  rewrite big1 // => -[v h] _ /=; have := inside0 v h; rewrite /inside /only.
  case: (P v h); last by rewrite mul0r.
  by rewrite andbT; case: ifP => [_ ->|/negbT/supported ->]; rewrite ?mulr0 ?mul0r.
exists b => v h in_P; have := bP (v, h); rewrite /only /= in_P => <-.
by apply: eq_bigr.
Qed.

Section Text.

Variables (n : nat) (x : text X n).
Hypothesis possible : 0 < mPr M omega x.
Notation elsewhere i := (mPr M omega (put x i (mask X))). (* P[X_{-i} = x_{-i}] *)

Lemma elsewhere_sum i : elsewhere i = \sum_h \sum_v word_joint M omega x i v h.
Proof.
rewrite proposition_D_1; apply: eq_bigr => h _; apply: eq_bigr => v _; exact: mul1r.
Qed.

Lemma elsewhere_gt0 i : 0 < elsewhere i.
Proof.
rewrite lt_neqAle eq_sym andbC {1}elsewhere_sum.
rewrite sumr_ge0 => [|h _]; last by apply: sumr_ge0 => v _; exact: word_joint_ge0.
apply/eqP; rewrite elsewhere_sum => zero.
suff eq0 : mPr M omega x = 0 by have := possible; rewrite eq0 ltxx.
have same : put x i (tnth x i) = x.
  by apply: eq_from_tnth => i'; rewrite tnth_mktuple; case: eqP => [->|].
rewrite -same proposition_D_1 big1 // => h _; rewrite big1 // => v _.
have zero_h : \sum_v word_joint M omega x i v h = 0.
  by apply: (psumr_eq0P _ zero) => // h' _; apply: sumr_ge0 => v' _; exact: word_joint_ge0.
have -> : word_joint M omega x i v h = 0.
  by apply: (psumr_eq0P _ zero_h) => // v' _; exact: word_joint_ge0.
by rewrite mulr0.
Qed.

(** What a weighting of the prediction gives. *)
Lemma weighted_prediction i (b : X -> R) (P : V -> state -> bool) (t : V -> state -> R) :
  (forall m h, omega m != 0 -> P (m h.1) h) ->
  (forall v h, P v h -> \sum_w b w * W w v h = t v h) ->
  \sum_w b w * mG M omega x i w = (\sum_h \sum_v t v h * word_joint M omega x i v h) / elsewhere i.
Proof.
move=> all_P bP; rewrite [RHS]big_distrl /=.
rewrite (eq_bigr (fun w => \sum_h (\sum_v b w * W w v h * word_joint M omega x i v h) / elsewhere i)); last first.
  move=> w _; rewrite /mG mulrA proposition_D_1 !big_distrr !big_distrl /=.
  apply: eq_bigr => h _; congr (_ / _); rewrite big_distrr /=.
  by apply: eq_bigr => v _; rewrite mulrA.
rewrite exchange_big; apply: eq_bigr => h _ /=; rewrite -big_distrl /=; congr (_ / _).
rewrite exchange_big; apply: eq_bigr => v _ /=; rewrite -big_distrl /=.
have [in_P|not_P] := boolP (P v h); first by rewrite bP.
have -> : word_joint M omega x i v h = 0; last by rewrite !mulr0.
rewrite /word_joint big1 // => m /eqP mv.
have [->|nonzero] := eqVneq (omega m) 0; first by rewrite mul0r.
by have := all_P m h nonzero; rewrite mv (negPf not_P).
Qed.

(** P[H_i is recoverable | X_{-i} = x_{-i}] *)
Definition recoverable_given i : R := (\sum_(h | R_ h) \sum_v word_joint M omega x i v h) / elsewhere i.

Lemma recoverable_given_le1 i : recoverable_given i <= 1.
Proof.
rewrite /recoverable_given le_quotient ?elsewhere_gt0 // mul1r elsewhere_sum.
rewrite [leRHS](bigID R_) /= le_sum sumr_ge0 // => h _.
by apply: sumr_ge0 => v _; exact: word_joint_ge0.
Qed.

Lemma sure_given i : sure M omega j D x i = (recoverable_given i == 1).
Proof.
have ge0 h : 0 <= \sum_v word_joint M omega x i v h by apply: sumr_ge0 => v _; exact: word_joint_ge0.
rewrite /recoverable_given; have den := elsewhere_gt0 i.
rewrite -(inj_eq (mulIf (lt0r_neq0 den))) mulfVK ?lt0r_neq0 // mul1r elsewhere_sum.
rewrite [X in _ == X](bigID R_) /= -subr_eq0 opprD addrA subrr sub0r oppr_eq0.
apply/forallP/eqP => [is_sure|zero h]; last first.
  apply/implyP; apply: contraR => not_r.
  by apply/eqP; apply: (psumr_eq0P _ zero) => // h' _; exact: ge0.
rewrite big1 // => h not_r; apply/eqP; have := is_sure h.
by rewrite (negPf not_r) implybF negbK.
Qed.

End Text.

(** The same where only the rest of the text is possible. *)
Lemma recoverable_given_rest n (x : text X n) i : 0 < mPr M omega (put x i (mask X)) ->
  recoverable_given x i <= 1 /\ sure M omega j D x i = (recoverable_given x i == 1).
Proof.
have same : put (put x i (mask X)) i (mask X) = put x i (mask X).
  by apply: eq_from_tnth => k; rewrite !tnth_mktuple; case: (k == i).
move=> possible; have := (recoverable_given_le1 possible i, sure_given possible i).
by rewrite /recoverable_given /sure /word_joint same => -[].
Qed.

Section Head.

(** A key that measures how surely a state is recoverable, and values that recover its joint probability with v. *)
Variables (P : V -> state -> bool) (key : X -> R) (recover : V * state -> X -> R) (mu : V -> R).
Hypothesis all_P : forall m h, omega m != 0 -> P (m h.1) h.
Hypothesis keyP : forall v h, P v h -> \sum_w key w * W w v h = (R_ h)%:R.
Hypothesis recoverP : forall p v h, P v h -> \sum_w recover p w * W w v h = (R_ p.2 && ((v, h) == p))%:R.

Definition head (offset : nat -> R) : attention_head R N V S X [finite unit] :=
  @AttentionHead R N V S X [finite unit] (fun=> 1) (fun=> key) (fun i => fun=> offset i)
    recover (fun p => if R_ p.2 then mu p.1 else 0).

Variables (n : nat) (x : text X n).
Notation elsewhere i := (mPr M omega (put x i (mask X))).
Notation g := (mG M omega x).

Lemma key_score i : \sum_w key w * g i w = recoverable_given x i.
Proof.
rewrite (weighted_prediction x i all_P keyP) /recoverable_given; congr (_ / _).
rewrite [RHS]big_mkcond /=; apply: eq_bigr => h _.
case: (R_ h); first by apply: eq_bigr => v _; rewrite mul1r.
by rewrite big1 // => v _; rewrite mul0r.
Qed.

Lemma score_head (g' : 'I_n -> X -> R) offset i :
  score (head offset) g' i = \sum_w key w * g' i w + offset i.
Proof. by rewrite /score (big_pred1 tt) /= ?mul1r //; case. Qed.

Lemma value_formula offset i :
  value (head offset) (g i) (membed M (tnth x i)) =
  (\sum_v mu v * \sum_(h | R_ h) membed M (tnth x i) v h * word_joint M omega x i v h) / elsewhere i.
Proof.
rewrite /value /=.
rewrite (eq_bigr (fun p : V * state => (if R_ p.2 then mu p.1 else 0) *
    (word_joint M omega x i p.1 p.2 / elsewhere i * membed M (tnth x i) p.1 p.2))); last first.
  move=> [v h] _ /=; case: ifP => [recoverable_h|_]; last by rewrite !mul0r.
  congr (_ * (_ * _)); rewrite (weighted_prediction x i all_P (recoverP (v, h))) /= recoverable_h.
  congr (_ / _); rewrite (bigD1 h) //= [X in _ + X]big1 ?addr0 => [|h' ne]; last first.
    by rewrite big1 // => v' _; rewrite xpair_eqE (negPf ne) andbF mul0r.
  rewrite (bigD1 v) //= [X in _ + X]big1 ?addr0 => [|v' ne]; last first.
    by rewrite xpair_eqE (negPf ne) mul0r.
  by rewrite eqxx mul1r.
rewrite -(pair_big predT predT (fun v h => (if R_ h then mu v else 0) *
    (word_joint M omega x i v h / elsewhere i * membed M (tnth x i) v h))) /=.
rewrite big_distrl /=; apply: eq_bigr => v _.
rewrite big_distrr big_distrl /= [RHS]big_mkcond /=.
apply: eq_bigr => h _; case: (R_ h); last by rewrite mul0r.
ring.
Qed.

Definition target : R := \sum_v mu v * cell_joint M omega x j v.

Lemma value_sure offset i : sure M omega j D x i ->
  value (head offset) (g i) (membed M (tnth x i)) = target / elsewhere i.
Proof.
move=> is_sure; rewrite value_formula /target; congr (_ / _).
by apply: eq_bigr => v _; rewrite (cell_joint_sure v is_sure).
Qed.

Lemma value_impossible offset i : mPr M omega x = 0 ->
  value (head offset) (g i) (membed M (tnth x i)) = 0.
Proof.
move=> zero; rewrite value_formula big1 ?mul0r // => v _.
have same : put x i (tnth x i) = x.
  by apply: eq_from_tnth => i'; rewrite tnth_mktuple; case: eqP => [->|].
have embed_ge0 v' h : 0 <= membed M (tnth x i) v' h.
  by rewrite /membed; case: (tnth x i) => [w|]; [exact: words_ge0 | exact: ler01].
have ge0 v' h : 0 <= membed M (tnth x i) v' h * word_joint M omega x i v' h.
  by rewrite mulr_ge0 ?word_joint_ge0.
rewrite big1 ?mulr0 // => h _.
have := zero; rewrite -{1}same proposition_D_1 => zero_sum.
have zero_h : \sum_v' membed M (tnth x i) v' h * word_joint M omega x i v' h = 0.
  by apply: (psumr_eq0P _ zero_sum) => // h' _; apply: sumr_ge0 => v' _; exact: ge0.
by apply: (psumr_eq0P _ zero_h) => // v' _; exact: ge0.
Qed.

(** The sum of the values at sure positions has the sign of the target. *)
Lemma mean_sign (A : {set 'I_n}) offset : 0 < mPr M omega x -> (exists i, i \in A) ->
  (forall i, i \in A -> sure M omega j D x i) ->
  (0 <= (\sum_(i in A) value (head offset) (g i) (membed M (tnth x i))) / #|A|%:R) = (0 <= target).
Proof.
move=> possible [i0 in_A] all_sure.
rewrite (eq_bigr (fun i => target / elsewhere i)); last by move=> i /all_sure; exact: value_sure.
rewrite -big_distrr -mulrA /= pmulr_lge0 // divr_gt0 //.
  rewrite (bigD1 i0) //= lt_sum ?invr_gt0 ?elsewhere_gt0 // sumr_ge0 // => i _.
  by rewrite invr_ge0 ltW ?elsewhere_gt0.
by rewrite ltr0n card_gt0; apply/set0Pn; exists i0.
Qed.

End Head.

(** Such a key and such values exist. *)
Lemma key_exists P : separated M P j D ->
  exists key : X -> R, forall v h, P v h -> \sum_w key w * W w v h = (R_ h)%:R.
Proof. by move=> assumed; apply: (recoverable_score assumed) => v h /negPf ->. Qed.

Lemma recover_exists P : separated M P j D -> exists recover : V * state -> X -> R,
  forall p v h, P v h -> \sum_w recover p w * W w v h = (R_ p.2 && ((v, h) == p))%:R.
Proof.
move=> assumed; apply: (@fin_all_exists _ _ (fun p b =>
    forall v h, P v h -> \sum_w b w * W w v h = (R_ p.2 && ((v, h) == p))%:R)) => p.
apply: (recoverable_score assumed) => v h not_r.
by case: eqP => [eq|_]; rewrite ?andbF // -eq /= (negPf not_r).
Qed.

(** For Claims D.3 and D.10. If a prediction mixes the columns of pairs in P, linear maps recover how much of it are
    the recoverable states, alone and with the memory. The first one gives a vector whose absolute values sum to 1. *)
Lemma read_outs P : separated M P j D ->
  exists (Theta1 : state -> X -> R) (Theta2 : V -> state -> X -> R),
  forall (c : V -> state -> R) (g : X -> R), (forall v h, 0 <= c v h) -> \sum_h \sum_v c v h = 1 ->
  (forall v h, ~~ P v h -> c v h = 0) -> (forall w, g w = mixture M c w) ->
  [/\ forall h, R_ h -> \sum_w Theta1 h w * g w = \sum_v c v h,
      \sum_h `|\sum_w Theta1 h w * g w| = 1 &
      forall v h, R_ h -> \sum_w Theta2 v h w * g w = c v h].
Proof.
move=> assumed; have [key keyP] := key_exists assumed.
have /fin_all_exists [alone aloneP] : forall h : state, exists b : X -> R,
    forall v h', P v h' -> \sum_w b w * W w v h' = (R_ h && (h' == h))%:R.
  move=> h; apply: (recoverable_score assumed) => v h' not_r.
  by case: eqP => [eq|_]; rewrite ?andbF // -eq (negPf not_r).
have [recover recoverP] := recover_exists assumed.
(* One state that is not recoverable, if there is one, takes what is left. *)
pose rest : option state := [pick h | ~~ R_ h].
exists (fun h => if R_ h then alone h else if rest == Some h then fun w => 1 - key w else fun=> 0).
exists (fun v h => recover (v, h)) => c g c_ge0 total c_P gP.
have scored b t : (forall v h, P v h -> \sum_w b w * W w v h = t v h) ->
    \sum_w b w * g w = \sum_h \sum_v t v h * c v h.
  move=> bP; rewrite (eq_bigr (fun w => \sum_h \sum_v b w * W w v h * c v h)); last first.
    move=> w _; rewrite gP big_distrr; apply: eq_bigr => h _.
    by rewrite big_distrr; apply: eq_bigr => v _; exact: mulrA.
  rewrite exchange_big; apply: eq_bigr => h _; rewrite exchange_big; apply: eq_bigr => v _ /=.
  rewrite -big_distrl /=; case: (boolP (P v h)) => [/bP -> //|/c_P ->]; by rewrite !mulr0.
have alone_score h : R_ h -> \sum_w alone h w * g w = \sum_v c v h.
  move=> r; rewrite (scored _ _ (aloneP h)) (bigD1 h) //= [X in _ + X]big1 ?addr0 => [|h' /negPf ne].
    by apply: eq_bigr => v _; rewrite r eqxx mul1r.
  by rewrite big1 // => v _; rewrite ne andbF mul0r.
have key_scored : \sum_w key w * g w = \sum_(h | R_ h) \sum_v c v h.
  rewrite (scored _ _ keyP) [RHS]big_mkcond; apply: eq_bigr => h _ /=.
  by case: (R_ h); [apply: eq_bigr => v _; exact: mul1r | rewrite big1 // => v _; exact: mul0r].
split=> [h r||v h r]; first by rewrite r alone_score.
  rewrite (bigID R_) /= (eq_bigr (fun h => \sum_v c v h)) => [|h r]; last first.
    by rewrite r alone_score ?ger0_norm ?sumr_ge0.
  have others : \sum_(h | R_ h) \sum_v c v h = 1 - \sum_(h | ~~ R_ h) \sum_v c v h.
    by rewrite -total [X in X - _](bigID R_) /= addrK.
  have others_ge0 : 0 <= \sum_(h | ~~ R_ h) \sum_v c v h by rewrite !sumr_ge0 // => h _; rewrite sumr_ge0.
  rewrite others /rest; case: pickP => [h0 not_r|all_r]; last first.
    by rewrite !big_pred0 ?addr0 ?subr0 // => h; exact: all_r.
  rewrite [X in _ + X](bigD1 h0) //= (negPf not_r) eqxx [X in _ + (_ + X)]big1 ?addr0; last first.
    move=> h /andP [/negPf r ne]; have /negPf -> : Some h0 != Some h by apply: contra ne => /eqP [->].
    by rewrite r big1 ?normr0 // => w _; rewrite mul0r.
  have -> : \sum_w (1 - key w) * g w = \sum_(h | ~~ R_ h) \sum_v c v h.
    rewrite (scored _ (fun v h => 1 - (R_ h)%:R)) => [|v h in_P]; last first.
      rewrite -(keyP v h in_P) -[X in X - _](words_sums_to_1 M v h) -sumrB.
      by apply: eq_bigr => w _; rewrite mulrBl mul1r.
    rewrite [RHS]big_mkcond; apply: eq_bigr => h _ /=; case: (R_ h) => /=.
      by rewrite big1 // => v _; rewrite subrr mul0r.
    by apply: eq_bigr => v _; rewrite subr0 mul1r.
  by rewrite ger0_norm // subrK.
rewrite (scored _ _ (recoverP (v, h))) (bigD1 h) //= [X in _ + X]big1 ?addr0 => [|h' ne]; last first.
  by rewrite big1 // => v' _; rewrite xpair_eqE (negPf ne) !andbF mul0r.
rewrite (bigD1 v) //= [X in _ + X]big1 ?addr0 => [|v' ne]; last first.
  by rewrite xpair_eqE (negPf ne) /= andbF mul0r.
by rewrite r eqxx mul1r.
Qed.

End Attention.
