(** * The book's own statements O.3 and O.5: a network that is a little off, and several classes *)

From mathcomp Require Import all_ssreflect all_algebra ring.
From hmm Require Import ordered_fields definitions messages left_inverse section_3 appendix_c exactness.

Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.

Import GRing.Theory Num.Theory Order.Theory.
Local Open Scope ring_scope.

Section Certificate.

Variables (R : realFieldType) (H X : finType) (M : hmm R H X).
Notation A := (transition M).
Notation W := (emission M).
Notation reweighted := (reweighted M).
Notation effective := (effective M).
Notation column_score := (column_score M).
Notation head_alone := (head_alone M).

(** ** Theorem O.3: certificate *)

Lemma reweighted_sum (d p : H -> R) : dot d p != 0 -> \sum_w reweighted d p w = 1.
Proof.
move=> nonzero; rewrite /reweighted (negPf nonzero) -big_distrl /= exchange_big /=.
rewrite (eq_bigr (fun h => d h * p h)) ?divff // => h _.
by rewrite -big_distrl /= emission_sums_to_1 mul1r.
Qed.

(** The score of a difference is at most the largest weight times the sum of absolute differences. *)
Lemma dot_bound (I : finType) (a c : I -> R) k : (forall i, `|a i| <= k) -> `|dot a c| <= k * \sum_i `|c i|.
Proof.
move=> bound; apply: le_trans (ler_norm_sum _ _ _) _; rewrite big_distrr; apply: ler_sum => i _ /=.
by rewrite normrM le_product.
Qed.

Lemma triangle (x y r s : R) : `|x| <= r -> `|y| <= s -> `|x + y| <= r + s.
Proof.
rewrite !ler_norml -!(subr_ge0 (- _)) -!(subr_ge0 _ r) -!(subr_ge0 _ s) => /andP [xr rx] /andP [ys sy].
rewrite -[X in _ && X]subr_ge0; apply/andP; split.
  by have -> : x + y - - (r + s) = (x - - r) + (y - - s); [ring | exact: addr_ge0].
by have -> : r + s - (x + y) = (r - x) + (s - y); [ring | exact: addr_ge0].
Qed.

Lemma near_label (y t : R) : `|y - t| < `|t| -> (0 <= y) = (0 <= t).
Proof.
case: (leP 0 t) => [t0|t0].
  by rewrite (ger0_norm t0) ltr_norml => /andP [+ _]; rewrite -subr_gt0 opprK subrK => /ltW.
by rewrite (ltr0_norm t0) ltr_norml => /andP [_]; rewrite -subr_gt0 opprB addKr oppr_gt0 leNgt => ->.
Qed.

(** Theorem O.3. The largest weight of the head is that of w1, and the smallest that of w0, so that kappa is half their
    difference. Any upper bound delta of the differences between nu and mu will do, and the box takes the smallest one.
    The factor d is any vector without negative entries. The box speaks of the two vectors d of (O.2). The conclusion
    is that the label of the score of the prediction g is the label of the task. *)
Theorem theorem_O_3 (mu : H -> R) (b : X -> R) (d : H -> R) (delta epsilon : R) (w0 w1 : X) :
  (forall h, 0 <= d h) ->
  (forall h, `|effective b d h - mu h| <= delta) ->
  (forall w, b w0 <= b w <= b w1) ->
  let kappa := (b w1 - b w0) / 2%:R in
  forall (p : H -> R) (g : X -> R), belief p ->
  \sum_w g w = 1 -> \sum_w `|g w - reweighted d p w| <= epsilon ->
  delta + epsilon * kappa * dot d p < `|dot mu p| ->
  (0 <= dot b g) = (0 <= dot mu p).
Proof.
move=> d0 close range kappa p g bel g1 near far; have [p0 p1] := bel.
have weights : `|dot (effective b d) p - dot mu p| <= delta.
  have -> : dot (effective b d) p - dot mu p = dot p (fun h => effective b d h - mu h).
    by rewrite /dot -sumrB; apply: eq_bigr => h _; ring.
  apply: le_trans (ler_norm_sum _ _ _) _; rewrite -[delta]mul1r -p1 big_distrl; apply: ler_sum => h _ /=.
  by rewrite normrM (ger0_norm (p0 h)) mulrC [X in _ <= X]mulrC le_product.
have [zero|nonzero] := eqVneq (dot d p) 0.
  have := weights; rewrite -equation_O_2 // zero mulr0 sub0r normrN => le.
  by move: far; rewrite zero mulr0 addr0 ltNge le.
have D_gt0 : 0 < dot d p by rewrite lt_neqAle eq_sym nonzero dot_ge0.
have two : 2%:R != 0 :> R by rewrite pnatr_eq0.
have kappa_ge0 : 0 <= kappa.
  by rewrite divr_ge0 ?ler0n // subr_ge0; case/andP: (range w0).
pose middle := (b w0 + b w1) / 2%:R.
have prediction : `|dot b g - dot b (reweighted d p)| <= kappa * epsilon.
  have -> : dot b g - dot b (reweighted d p) = dot (fun w => b w - middle) (fun w => g w - reweighted d p w).
    have same : \sum_w (g w - reweighted d p w) = 0 by rewrite sumrB g1 reweighted_sum // subrr.
    have -> : dot b g - dot b (reweighted d p) =
        dot b (fun w => g w - reweighted d p w) - middle * \sum_w (g w - reweighted d p w).
      by rewrite same mulr0 subr0 /dot -sumrB; apply: eq_bigr => w _; rewrite mulrBr.
    by rewrite /dot big_distrr -sumrB; apply: eq_bigr => w _; rewrite mulrBl.
  apply: le_trans (dot_bound (k := kappa) _ _) _ => [w|]; last first.
    by rewrite mulrC [X in _ <= X]mulrC le_product.
  have /andP [low high] := range w; rewrite ler_norml; apply/andP; split; rewrite -subr_ge0.
    by have -> : b w - middle - - kappa = b w - b w0; [rewrite /kappa /middle; field | rewrite subr_ge0].
  by have -> : kappa - (b w - middle) = b w1 - b w; [rewrite /kappa /middle; field | rewrite subr_ge0].
have -> : (0 <= dot b g) = (0 <= dot d p * dot b g) by rewrite pmulr_rge0.
apply: near_label; apply: le_lt_trans far.
have -> : dot d p * dot b g - dot mu p =
    (dot (effective b d) p - dot mu p) + dot d p * (dot b g - dot b (reweighted d p)).
  by rewrite -equation_O_2 //; ring.
apply: triangle => //; rewrite normrM (gtr0_norm D_gt0) mulrC le_product ?(ltW D_gt0) //.
by rewrite [epsilon * _]mulrC.
Qed.

(** ** Corollary O.5: several classes *)

(** The head of Theorem 3.3 for the task mu, W^T b = mu * P[H_0] / P[H_1], written state by state. *)
Definition head_of_theorem_3_3 (mu : H -> R) (b : X -> R) : Prop :=
  forall h, \sum_w b w * W w h = mu h * (initial M h / marginal M 1 h).

(** The classes of largest score. *)
Definition argmax (K : finType) (score : K -> R) : {set K} := [set k | [forall k', score k' <= score k]].

(** Corollary O.5. The heads of Theorem 3.3 exist for any tasks. With any such heads, the classes of largest score are
    those of largest target, after every text that can occur. The arg max is the set of all largest classes, so that
    ties are kept, too. That the heads share one scale is part of [head_of_theorem_3_3]. *)
Corollary corollary_O_5 (K : finType) (mu : K -> H -> R) : assumption_3_1 M -> assumption_3_2 M ->
  (exists b : K -> X -> R, forall k, head_of_theorem_3_3 (mu k) (b k)) /\
  forall b : K -> X -> R, (forall k, head_of_theorem_3_3 (mu k) (b k)) ->
  forall n (x : text X n), 0 < Pr M x ->
  argmax (fun k => \sum_w b k w * G M [tuple of mask X :: x] ord0 w) =
  argmax (fun k => \sum_h mu k h * posterior M x ord0 h).
Proof.
move=> independent regular; have positive := proj2 regular; have reached := regular_marginal regular; split.
  have column k : exists c : {ffun X -> R}, [forall h, \sum_w c w * W w h == mu k h * (initial M h / marginal M 1 h)].
    have [c cP] := left_inverse independent (fun h => mu k h * (initial M h / marginal M 1 h)).
    exists (finfun c); apply/forallP => h; rewrite -cP //; apply/eqP; apply: eq_bigr => w _.
    by rewrite ffunE.
  exists (fun k w => (xchoose (column k) : {ffun X -> R}) w) => k h.
  by have /forallP/(_ h)/eqP := xchooseP (column k).
move=> b heads n x possible; set p := posterior M x ord0.
have bel : belief p := posterior_belief possible.
have d_gt0 h : 0 < head_alone h by rewrite divr_gt0.
have d0 h : 0 <= head_alone h := ltW (d_gt0 h).
have D_gt0 : 0 < dot head_alone p.
  rewrite lt_neqAle eq_sym dot_ge0 // andbT; apply/eqP => zero; have := excluded d0 bel zero.
  move=> none; have [_ /eqP] := bel; rewrite big1 ?(eq_sym 0) ?oner_eq0 // => h _.
  by have /eqP := none h; rewrite mulf_eq0 (negPf (lt0r_neq0 (d_gt0 h))) => /eqP.
have scaled k : (\sum_w b k w * G M [tuple of mask X :: x] ord0 w) * dot head_alone p = dot (mu k) p.
  transitivity (dot (effective (b k) head_alone) p).
    rewrite -equation_O_2 //; congr (_ * _); apply: eq_bigr => w _.
    by rewrite equation_O_2_head_alone.
  apply: eq_bigr => h _; congr (_ * _).
  rewrite /effective /column_score /dot heads /head_alone; field.
  by rewrite !lt0r_neq0.
apply/setP => k; rewrite !inE; apply: eq_forallb => k'; rewrite -!/(dot _ _) -!scaled.
by rewrite -[LHS]subr_ge0 -[RHS]subr_ge0 -mulrBl pmulr_lge0.
Qed.

End Certificate.
