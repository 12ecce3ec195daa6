(** * When a table of numbers has a left inverse *)

From mathcomp Require Import all_ssreflect all_algebra ring.
From hmm Require Import definitions.

Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.

Import GRing.Theory Num.Theory Order.Theory.
Local Open Scope ring_scope.

Section LeftInverse.

Variables (R : realFieldType) (I X : finType).

(** A weighting t of the columns of W is a score b of W, if t vanishes wherever W does. *)
Lemma score_exists (W : X -> I -> R) (t : I -> R) :
  (forall c : I -> R, (forall x, \sum_i W x i * c i = 0) -> \sum_i t i * c i = 0) ->
  exists b : X -> R, forall i, \sum_x b x * W x i = t i.
Proof.
move=> vanishes.
pose A : 'M[R]_(#|X|, #|I|) := \matrix_(x, i) W (enum_val x) (enum_val i).
pose target : 'rV[R]_#|I| := \row_i t (enum_val i).
have to_enum (T : finType) (F : T -> R) : \sum_i F i = \sum_(k < #|T|) F (enum_val k).
  rewrite (reindex (fun k : 'I_#|T| => enum_val k)) //=.
  by exists enum_rank => i _; rewrite ?enum_valK ?enum_rankK.
have /submxP [b bP] : (target <= A)%MS.
  rewrite submxE; apply/eqP/rowP => j; rewrite [RHS]mxE mxE.
  pose c i := cokermx A (enum_rank i) j.
  have zero x : \sum_i W x i * c i = 0.
    have /matrixP/(_ (enum_rank x) j) := mulmx_coker A; rewrite [RHS]mxE mxE => coker.
    by rewrite -[RHS]coker [LHS]to_enum; apply: eq_bigr => i _; rewrite mxE enum_rankK /c enum_valK.
  by rewrite -[RHS](vanishes c zero) [RHS]to_enum; apply: eq_bigr => i _; rewrite mxE /c enum_valK.
exists (fun x => b 0 (enum_rank x)) => i.
have /rowP/(_ (enum_rank i)) := bP; rewrite !mxE enum_rankK => ->.
by rewrite [LHS]to_enum; apply: eq_bigr => x _; rewrite mxE enum_rankK enum_valK.
Qed.

End LeftInverse.

(** If the columns of W at the states of D are independent, any weighting of these states is a score. *)
Lemma left_inverse (R : realFieldType) (H X : finType) (M : hmm R H X) (D : {pred H}) :
  independent_columns M D ->
  forall t : H -> R, exists b : X -> R, forall h, h \in D -> \sum_w b w * emission M w h = t h.
Proof.
move=> independent t.
pose inside h (r : R) := if h \in D then r else 0.
have [|b bP] := @score_exists R H X (fun x h => inside h (emission M x h)) (fun h => inside h (t h)).
  move=> c zero; pose c' h := inside h (c h).
  have c'0 : forall h, c' h = 0.
    apply: independent => [h notin|x]; first by rewrite /c' /inside (negPf notin).
    rewrite -[RHS](zero x); apply: eq_bigr => h _; rewrite /c' /inside.
    by case: (h \in D); rewrite ?mulr0 ?mul0r.
  rewrite big1 // => h _; have := c'0 h; rewrite /c' /inside.
  by case: (h \in D) => [->|_]; rewrite ?mulr0 ?mul0r.
exists b => h inD; have := bP h; rewrite /inside inD => <-.
by apply: eq_bigr.
Qed.
