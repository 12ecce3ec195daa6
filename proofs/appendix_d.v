(** * Section 4.2 and Appendix D: a prompt and an attention head *)

From mathcomp Require Import all_ssreflect all_algebra.
From hmm Require Import ordered_fields definitions attention lifting appendix_d_lemmas.

Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.

Import GRing.Theory Num.Theory Order.Theory.
Local Open Scope ring_scope.

(** Theorem D.6, and Theorem 4.6 if there is one cell: with one prompt and one attention head, the label is right on
    every text with a sure position. The prompt and the lifted embeddings have an entry for each lifted state. *)
Theorem theorem_D_6 (R : realFieldType) (N : nat) (V S X : finType) (M : memory_hmm R N V S X)
    (j : 'I_N) (D : {pred S}) (mu : V -> R) :
  stationary M -> assumption_D_5 M mu j D ->
  exists u : lifted_state N V S -> R, (forall l, 0 <= u l <= 1) /\
  exists a : attention_head R N V S X [finite unit],
  forall n (x : text X n), 0 < mPr M (prior M) x -> (exists i, sure M (prior M) j D x i) ->
  mlabel M (prior M) mu j x =
    (0 <= attention a (mGbar M (mprompted M u x)) (fun i => lift_down (tnth (mprompted M u x) i))).
Proof.
move=> is_stationary assumed.
have [key [offset attends]] := lemma_D_9 is_stationary assumed.
have [recover reads] := lemma_D_13 is_stationary assumed.
exists (prompt j mu); split=> [l|]; first by rewrite /prompt /kept; case: (_ != 0); rewrite !(lexx, ler01).
exists (head j D key recover mu offset) => n x possible some_sure.
have [exactly first includes] := attends recover n x some_sure.
rewrite /mlabel /attention; set A := attended _ _ in exactly first *.
have [excluded|allowed] := eqVneq (with_Pr M (prompt j mu) x) 0.
  rewrite ((claim_D_15 j mu is_stationary x).1 excluded) big1 ?mul0r // => i.
  case: (unliftP ord0 i) => [k -> _|->]; last by rewrite (negPf first).
  by have [_ _ ->] := reads key offset n x k possible.
have A_sure := exactly (fun i => rest_possible is_stationary i allowed).
have [i0 sure0] := some_sure; have in_A := includes i0 sure0; rewrite -A_sure in in_A.
set target := \sum_v _; pose V_at i := value (head j D key recover mu offset)
  (mGbar M (mprompted M (prompt j mu) x) i) (lift_down (tnth (mprompted M (prompt j mu) x) i)).
have multiple i : i \in A -> exists2 r, 0 < r & V_at i = r * target.
  rewrite A_sure => /imsetP [k]; rewrite inE => k_sure ->.
  by have [_ multiple _] := reads key offset n x k possible; exact: multiple k_sure.
have size_gt0 : 0 < #|A|%:R^-1 :> R by rewrite invr_gt0 ltr0n card_gt0; apply/set0Pn; exists (lift ord0 i0).
rewrite pmulr_lge0 //; have [target_ge0|target_lt0] := lerP 0 target; apply/esym.
  by rewrite sumr_ge0 // => i /multiple [r r_gt0 eq]; rewrite -/(V_at i) eq mulr_ge0 // ltW.
have V_lt0 i : i \in A -> V_at i < 0 by move=> /multiple [r r_gt0 ->]; rewrite pmulr_rlt0.
apply/negbTE; rewrite -ltNge (bigD1 (lift ord0 i0)) //= -oppr_gt0 opprD lt_sum ?oppr_gt0 ?V_lt0 // -sumrN sumr_ge0 // => i.
by move=> /andP [/V_lt0 lt0 _]; rewrite oppr_ge0 ltW.
Qed.

(** Theorem 4.6, in the case of one memory cell, is Theorem D.6 there. *)
Corollary theorem_4_6 (R : realFieldType) (V S X : finType) (M : memory_hmm R 1 V S X) (D : {pred S}) (mu : V -> R) :
  stationary M -> assumption_4_5 M mu D ->
  exists u : lifted_state 1 V S -> R, (forall l, 0 <= u l <= 1) /\
  exists a : attention_head R 1 V S X [finite unit],
  forall n (x : text X n), 0 < mPr M (prior M) x -> (exists i, sure M (prior M) ord0 D x i) ->
  mlabel M (prior M) mu ord0 x =
    (0 <= attention a (mGbar M (mprompted M u x)) (fun i => lift_down (tnth (mprompted M u x) i))).
Proof. exact: theorem_D_6. Qed.
