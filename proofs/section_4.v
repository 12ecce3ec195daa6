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

(** Claim D.3: linear maps recover from the prediction how probable the recoverable states are, alone and with the
    memory. The first one gives a vector whose absolute values sum to 1. *)
Lemma claim_D_3 : exists (Theta1 : state N S -> X -> R) (Theta2 : V -> state N S -> X -> R),
  forall n (x : text X n) i, 0 < mPr M omega x ->
  [/\ forall h, recoverable j D h -> \sum_w Theta1 h w * G x i w = state_posterior x i h,
      \sum_h `|\sum_w Theta1 h w * G x i w| = 1 &
      forall v h, recoverable j D h -> \sum_w Theta2 v h w * G x i w = word_posterior x i v h].
Proof.
have [Theta1 [Theta2 read]] := read_outs assumed; exists Theta1, Theta2 => n x i possible.
have gt0 := elsewhere_gt0 (prior_ge0 M) possible i.
have [|||w|alone total with_memory] := read (word_posterior x i) (G x i).
- by move=> v h; rewrite divr_ge0 ?(ltW gt0) // word_joint_ge0 //; exact: prior_ge0.
- rewrite -[RHS](divff (lt0r_neq0 gt0)) [X in _ = X / _]elsewhere_sum big_distrl; apply: eq_bigr => h _ /=.
  by rewrite big_distrl.
- by [].
- rewrite /mG proposition_D_1 /mixture big_distrl; apply: eq_bigr => h _ /=.
  by rewrite big_distrl; apply: eq_bigr => v _ /=; rewrite mulrA.
by split=> // h r; rewrite alone // /state_posterior big_distrl.
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
  exists a : attention_head R N V S X [finite unit],
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
