(** * Section 4.1: an attention head reads the memory *)

From mathcomp Require Import all_ssreflect all_algebra ring.
From hmm Require Import definitions messages left_inverse section_3 appendix_c attention.

Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.

Import GRing.Theory Num.Theory Order.Theory.
Local Open Scope ring_scope.

Section Section41.

Variables (R : realFieldType) (N : nat) (V S X : finType) (M : memory_hmm R N V S X) (j : 'I_N) (D : {pred S}).
Hypothesis assumed : assumption_4_2 M j D.
Notation omega := (prior M).
Notation elsewhere x i := (mPr M omega (put x i (mask X))).
Notation G x := (mG M omega x).

(** P[M_j = v, H_i = h | X_{-i} = x_{-i}], where j is the cell of h *)
Definition word_posterior n (x : text X n) i v h : R := word_joint M omega x i v h / elsewhere x i.

(** P[H_i = h | X_{-i} = x_{-i}] *)
Definition state_posterior n (x : text X n) i h : R := (\sum_v word_joint M omega x i v h) / elsewhere x i.

(** The score of a weighting of all columns, given a text that can occur. *)
Lemma scored (b : X -> R) (t : V -> state N S -> R) n (x : text X n) i :
  (forall v h, \sum_w b w * words M w v h = t v h) ->
  \sum_w b w * G x i w = (\sum_h \sum_v t v h * word_joint M omega x i v h) / elsewhere x i.
Proof.
move=> bP; apply: (@weighted_prediction _ _ _ _ _ M omega n x i b (fun _ _ => true) t) => //.
Qed.

(** Claim D.3: linear maps recover from the prediction how probable the recoverable states are, alone and with the
    memory. The first one gives a vector whose absolute values sum to 1. *)
Lemma claim_D_3 : exists (Theta1 : state N S -> X -> R) (Theta2 : V -> state N S -> X -> R),
  forall n (x : text X n) i, 0 < mPr M omega x ->
  [/\ forall h, recoverable j D h -> \sum_w Theta1 h w * G x i w = state_posterior x i h,
      \sum_h `|\sum_w Theta1 h w * G x i w| = 1 &
      forall v h, recoverable j D h -> \sum_w Theta2 v h w * G x i w = word_posterior x i v h].
Proof.
have [key keyP] := key_exists assumed.
have /fin_all_exists [alone aloneP] : forall h : state N S, exists b : X -> R,
    forall v h', \sum_w b w * words M w v h' = (recoverable j D h && (h' == h))%:R.
  move=> h; have [|b bP] := recoverable_score assumed (t := fun v h' => (recoverable j D h && (h' == h))%:R).
    by move=> v h' not_r; case: eqP => [eq|_]; rewrite ?andbF // -eq (negPf not_r).
  by exists b => v h'; rewrite bP.
have [recover recoverP] := recover_exists assumed.
(* One state that is not recoverable, if there is one, takes what is left. *)
pose rest : option (state N S) := [pick h | ~~ recoverable j D h].
exists (fun h => if recoverable j D h then alone h else if rest == Some h then fun w => 1 - key w else fun=> 0).
exists (fun v h => recover (v, h)) => n x i possible.
have alone_score h : recoverable j D h -> \sum_w alone h w * G x i w = state_posterior x i h.
  move=> r; rewrite (scored x i (aloneP h)) /state_posterior; congr (_ / _).
  rewrite (bigD1 h) //= [X in _ + X]big1 ?addr0 => [|h' /negPf ne].
    by apply: eq_bigr => v _; rewrite r eqxx mul1r.
  by rewrite big1 // => v _; rewrite ne andbF mul0r.
split=> [h r||v h r]; first by rewrite r alone_score.
  have posterior_ge0 h : 0 <= state_posterior x i h.
    rewrite divr_ge0 ?(ltW (elsewhere_gt0 (prior_ge0 M) possible i)) // sumr_ge0 // => v _.
    by apply: word_joint_ge0; exact: prior_ge0.
  have certain : \sum_(h | recoverable j D h) state_posterior x i h = recoverable_given M omega j D x i.
    by rewrite /recoverable_given big_distrl.
  rewrite (bigID (recoverable j D)) /=.
  rewrite (eq_bigr (state_posterior x i)) => [|h r]; last by rewrite r alone_score ?ger0_norm.
  have key_given : \sum_w key w * G x i w = recoverable_given M omega j D x i.
    by apply: (@key_score _ _ _ _ _ M omega j D (fun _ _ => true) key) => // v h _; exact: keyP.
  have total : \sum_w 1 * G x i w = 1.
    rewrite (scored x i (t := fun _ _ => 1)) => [|v h].
      have -> : \sum_h \sum_v 1 * word_joint M omega x i v h = elsewhere x i.
        by rewrite elsewhere_sum; apply: eq_bigr => h _; apply: eq_bigr => v _; rewrite mul1r.
      by rewrite divff // lt0r_neq0 // elsewhere_gt0 //; exact: prior_ge0.
    by rewrite -[RHS](words_sums_to_1 M v h); apply: eq_bigr => w _; rewrite mul1r.
  rewrite certain /rest; case: pickP => [h0 not_r|all_r]; last first.
    rewrite [X in _ + X]big_pred0 ?addr0; last by move=> h; exact: all_r.
    rewrite -certain /state_posterior -big_distrl /= (eq_bigl predT) => [|h]; last first.
      by have := all_r h; case: (recoverable j D h).
    by rewrite -elsewhere_sum divff // lt0r_neq0 // elsewhere_gt0 //; exact: prior_ge0.
  rewrite (bigD1 h0) //= (negPf not_r) eqxx [X in _ + (_ + X)]big1 ?addr0 => [|h /andP [/negPf r ne]]; last first.
    have /negPf -> : Some h0 != Some h by apply: contra ne => /eqP [->].
    by rewrite r big1 ?normr0 // => w _; rewrite mul0r.
  rewrite (eq_bigr (fun w => 1 * G x i w - key w * G x i w)); last by move=> w _; rewrite mulrBl.
  rewrite sumrB total key_given ger0_norm ?subr_ge0; first by rewrite addrC subrK.
  by apply: recoverable_given_le1 => //; exact: prior_ge0.
rewrite (scored x i (fun v' h' => recoverP (v, h) v' h' isT)) /word_posterior; congr (_ / _).
rewrite (bigD1 h) //= [X in _ + X]big1 ?addr0 => [|h' ne]; last first.
  by rewrite big1 // => v' _; rewrite xpair_eqE (negPf ne) !andbF mul0r.
rewrite (bigD1 v) //= [X in _ + X]big1 ?addr0 => [|v' ne]; last first.
  by rewrite xpair_eqE (negPf ne) /= andbF mul0r.
by rewrite r eqxx mul1r.
Qed.

(** Lemma D.2: a query and a key attend exactly to the sure positions, if there is one. *)
Lemma lemma_D_2 : exists key : X -> R,
  forall (recover : V * state N S -> X -> R) (mu : V -> R) n (x : text X n), 0 < mPr M omega x ->
  (exists i, sure M omega j D x i) ->
  attended (head j D key recover mu (fun=> 0)) (G x) = [set i | sure M omega j D x i].
Proof.
have [key keyP] := key_exists assumed; exists key => recover mu n x possible [i0 sure0].
have omega_ge0 := prior_ge0 M.
have score_is i : score (head j D key recover mu (fun=> 0)) (G x) i = recoverable_given M omega j D x i.
  by rewrite score_head addr0 (key_score _ keyP).
apply/setP => i; rewrite !inE; apply/forallP/idP => [most|is_sure i'].
  have := most i0; rewrite !score_is; move: sure0; rewrite !sure_given // => /eqP ->.
  by move=> ge1; rewrite eq_le recoverable_given_le1.
by move: is_sure; rewrite sure_given // !score_is => /eqP ->; exact: recoverable_given_le1.
Qed.

(** Lemma D.4: at a sure position the value is a positive multiple of the target of the task. *)
Lemma lemma_D_4 (mu : V -> R) : exists recover : V * state N S -> X -> R,
  forall key offset n (x : text X n) i, 0 < mPr M omega x -> sure M omega j D x i ->
  exists2 r : R, 0 < r &
  value (head j D key recover mu offset) (G x i) (membed M (tnth x i)) =
    r * \sum_v mu v * cell_posterior M omega x j v.
Proof.
have [recover recoverP] := recover_exists assumed; exists recover => key offset n x i possible is_sure.
have elsewhere_gt0 := elsewhere_gt0 (prior_ge0 M) possible i.
exists (mPr M omega x / elsewhere x i); first by rewrite divr_gt0.
rewrite (@value_sure _ _ _ _ _ M omega (prior_ge0 M) j D (fun _ _ => true) key recover mu) //.
have -> : \sum_v mu v * cell_posterior M omega x j v = target M omega j mu x / mPr M omega x.
  by rewrite /target big_distrl /=; apply: eq_bigr => v _; rewrite /cell_posterior mulrA.
transitivity (target M omega j mu x / elsewhere x i * (mPr M omega x / mPr M omega x)); last by ring.
by rewrite divff ?mulr1 ?lt0r_neq0.
Qed.

End Section41.

(** Theorem 4.3: at sure positions, an attention head reads the label of a task about one cell of the memory. *)
Theorem theorem_4_3 (R : realFieldType) (N : nat) (V S X : finType) (M : memory_hmm R N V S X)
    (j : 'I_N) (D : {pred S}) : assumption_4_2 M j D -> forall mu : V -> R,
  exists a : attention_head R N V S X [finType of unit],
  forall n (x : text X n), 0 < mPr M (prior M) x -> (exists i, sure M (prior M) j D x i) ->
  mlabel M (prior M) mu j x = (0 <= attention a (mG M (prior M) x) (fun i => membed M (tnth x i))).
Proof.
move=> assumed mu.
have [key attends] := lemma_D_2 assumed.
have [recover recoverP] := recover_exists assumed.
exists (head j D key recover mu (fun=> 0)) => n x possible some_sure.
rewrite /attention attends //.
rewrite (@mean_sign _ _ _ _ _ M (prior M) (prior_ge0 M) j D (fun _ _ => true)) //; first last.
- by move=> i; rewrite inE.
- by case: some_sure => i0 sure0; exists i0; rewrite inE.
rewrite /mlabel.
have -> : \sum_v mu v * cell_posterior M (prior M) x j v = target M (prior M) j mu x / mPr M (prior M) x.
  by rewrite /target big_distrl /=; apply: eq_bigr => v _; rewrite /cell_posterior mulrA.
by rewrite pmulr_lge0 ?invr_gt0.
Qed.
