(** * The book's own statements O.2 and O.4: which tasks have a head *)

From mathcomp Require Import all_ssreflect all_algebra ring.
From hmm Require Import ordered_fields definitions messages left_inverse section_3 appendix_c.

Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.

Import GRing.Theory Num.Theory Order.Theory.
Local Open Scope ring_scope.

Section Weights.

Variables (R : realFieldType) (I : finType).
Implicit Types (a c p : I -> R) (i j : I).

(** The inner product of two vectors, for example the target of a task at a belief, or the score of a head. *)
Definition dot a p : R := \sum_i a i * p i.

(** A belief: a distribution over the states. *)
Definition belief p : Prop := (forall i, 0 <= p i) /\ \sum_i p i = 1.

(** The task has a positive and a negative weight. *)
Definition both_signs a : Prop := (exists i, 0 < a i) /\ (exists i, a i < 0).

Lemma dot_scale r a p : dot (fun i => r * a i) p = r * dot a p.
Proof. by rewrite /dot big_distrr; apply: eq_bigr => i _; rewrite /= mulrA. Qed.

Lemma dot_scale_right r a p : dot a (fun i => r * p i) = r * dot a p.
Proof. by rewrite /dot big_distrr; apply: eq_bigr => i _; rewrite /= mulrCA. Qed.

Lemma eq_dot a c p : a =1 c -> dot a p = dot c p.
Proof. by move=> ac; apply: eq_bigr => i _; rewrite ac. Qed.

Lemma sum_at a j : \sum_i a i * (i == j)%:R = a j.
Proof. by rewrite (bigD1 j) //= eqxx mulr1 big1 ?addr0 // => i /negPf ->; rewrite mulr0. Qed.

(** A belief on the edge between two corners. Its shares are as r is to s. *)
Definition edge i j (r s : R) : I -> R := fun k => r / (r + s) * (k == i)%:R + s / (r + s) * (k == j)%:R.

Lemma dot_edge a i j r s : dot a (edge i j r s) = (r * a i + s * a j) / (r + s).
Proof.
rewrite /dot /edge (eq_bigr (fun k => r / (r + s) * a k * (k == i)%:R + s / (r + s) * a k * (k == j)%:R)).
  by rewrite big_split /= !sum_at mulrDl; congr (_ + _); rewrite mulrAC.
by move=> k _; rewrite mulrDr; congr (_ + _); rewrite mulrCA mulrA.
Qed.

Lemma edge_belief i j r s : 0 <= r -> 0 <= s -> 0 < r + s -> belief (edge i j r s).
Proof.
move=> r0 s0 rs; split=> [k|]; first by rewrite addr_ge0 // mulr_ge0 ?ler0n // divr_ge0 // ltW.
have := dot_edge (fun=> 1) i j r s; rewrite !mulr1 divff ?lt0r_neq0 // => <-.
by apply: eq_bigr => k _; rewrite mul1r.
Qed.

(** Two weightings that give every belief the same label are positive multiples of each other, if one of them takes
    both signs. *)
Lemma multiple_needed (mu nu : I -> R) : both_signs mu ->
  (forall p, belief p -> (0 <= dot nu p) = (0 <= dot mu p)) ->
  exists2 l, 0 < l & forall i, nu i = l * mu i.
Proof.
move=> [[i0 pos] [j0 neg]] same.
have edges i j r s : 0 <= r -> 0 <= s -> 0 < r + s ->
    (0 <= r * nu i + s * nu j) = (0 <= r * mu i + s * mu j).
  move=> r0 s0 rs; have := same _ (edge_belief i j r0 s0 rs).
  by rewrite !dot_edge !pmulr_lge0 ?invr_gt0.
have corner i : (0 <= nu i) = (0 <= mu i).
  have := @edges i i 1 0; rewrite !mul1r !mul0r !addr0; apply; rewrite ?addr0 ?ltr01 ?ler01 ?lexx //.
have corner_lt i : (nu i < 0) = (mu i < 0) by rewrite !ltNge corner.
have cross i j : 0 <= mu i -> mu j < 0 -> mu i * nu j = nu i * mu j.
  move=> i_ge0 j_lt0; have ni : 0 <= nu i by rewrite corner.
  have nj : nu j < 0 by rewrite corner_lt.
  have pos_sum (x y : R) : 0 <= x -> y < 0 -> 0 < - y + x by move=> x0 y0; rewrite lt_sum ?oppr_gt0.
  have e1 : 0 <= - mu j * nu i + mu i * nu j.
    by rewrite edges ?oppr_ge0 ?(ltW j_lt0) ?pos_sum // mulNr mulrC addrC subrr lexx.
  have e2 : 0 <= - nu j * mu i + nu i * mu j.
    by rewrite -edges ?oppr_ge0 ?(ltW nj) ?pos_sum // mulNr mulrC addrC subrr lexx.
  apply/eqP; rewrite eq_le -subr_ge0 -[X in _ && X]subr_ge0; apply/andP; split.
    by rewrite [X in 0 <= X](_ : _ = - nu j * mu i + nu i * mu j) //; ring.
  by rewrite [X in 0 <= X](_ : _ = - mu j * nu i + mu i * nu j) //; ring.
have i0' := lt0r_neq0 pos; have j0' : mu j0 != 0 by rewrite lt_eqF.
have nj0 : nu j0 < 0 by rewrite corner_lt.
exists (nu j0 / mu j0) => [|i]; first by rewrite -mulrNN -invrN mulr_gt0 ?invr_gt0 ?oppr_gt0.
case: (leP 0 (mu i)) => [i_ge0|i_lt0].
  by apply: (mulIf j0'); rewrite -cross // mulrAC divfK // mulrC.
have ratio : nu j0 / mu j0 = nu i0 / mu i0.
  by apply/eqP; rewrite eqr_div // mulrC cross // ltW.
by rewrite ratio; apply: (mulIf i0'); rewrite mulrAC divfK // [RHS]mulrC [LHS]mulrC (cross i0 i) 1?mulrC // ltW.
Qed.

End Weights.

Section Solvable.

Variables (R : realFieldType) (H X : finType) (M : hmm R H X).
Notation A := (transition M).
Notation W := (emission M).

(** ** Equation (O.2) *)

(** The prediction of a token, where the belief p is multiplied by the factor d, state by state, on its way. Where the
    sum of d times p is 0, the prediction is 0. *)
Definition reweighted (d p : H -> R) (w : X) : R :=
  if dot d p == 0 then 0 else (\sum_h W w h * (d h * p h)) / dot d p.

(** The score of a column of W. *)
Definition column_score (b : X -> R) (h : H) : R := dot b (fun w => W w h).

(** The effective weights nu of the head b. *)
Definition effective (b : X -> R) (d : H -> R) (h : H) : R := d h * column_score b h.

(** The factor for a head alone, P[H_1] / P[H_0]. *)
Definition head_alone (h : H) : R := marginal M 1 h / initial M h.

(** The factor with the prompt u, A (u * P[H_1]) / P[H_0]. *)
Definition with_prompt (u : embedding R H) (h : H) : R := conditioned M u h / initial M h.

(** The label of the score is the label of the task, for every belief. *)
Definition right_for_every_belief (mu : H -> R) (b : X -> R) (d : H -> R) : Prop :=
  forall p, belief p -> (0 <= dot b (reweighted d p)) = (0 <= dot mu p).

Local Arguments marginal : simpl never.

Lemma dot_ge0 (d p : H -> R) : (forall h, 0 <= d h) -> belief p -> 0 <= dot d p.
Proof. by move=> d0 [p0 _]; apply: sumr_ge0 => h _; rewrite mulr_ge0. Qed.

Lemma excluded (d p : H -> R) : (forall h, 0 <= d h) -> belief p -> dot d p = 0 -> forall h, d h * p h = 0.
Proof.
move=> d0 [p0 _] zero h; have ge0 k : 0 <= d k * p k by rewrite mulr_ge0.
exact: (psumr_eq0P (fun k _ => ge0 k) zero).
Qed.

(** The second line of (O.2): up to a positive factor, the score is a weighted sum of the belief. *)
Lemma equation_O_2 (b : X -> R) (d p : H -> R) : (forall h, 0 <= d h) -> belief p ->
  dot b (reweighted d p) * dot d p = dot (effective b d) p.
Proof.
move=> d0 bel; have [zero|nonzero] := eqVneq (dot d p) 0.
  rewrite zero mulr0 /dot big1 // => h _.
  by rewrite /effective mulrAC (excluded d0 bel zero) mul0r.
rewrite {1}/dot (eq_bigr (fun w => (\sum_h b w * W w h * (d h * p h)) / dot d p)); last first.
  move=> w _; rewrite /reweighted (negPf nonzero) mulrA big_distrr /=; congr (_ / _).
  by apply: eq_bigr => h _; rewrite mulrA.
rewrite -big_distrl /= divfK // exchange_big; apply: eq_bigr => h _ /=.
by rewrite -big_distrl /effective /= mulrA (mulrC (d h)).
Qed.

Lemma score_label (b : X -> R) (d p : H -> R) : (forall h, 0 <= d h) -> belief p ->
  (0 <= dot b (reweighted d p)) = (0 <= dot (effective b d) p).
Proof.
move=> d0 bel; rewrite -equation_O_2 //; have [zero|nonzero] := eqVneq (dot d p) 0.
  rewrite zero mulr0 lexx /dot big1 ?lexx // => w _.
  by rewrite /reweighted zero eqxx mulr0.
by rewrite pmulr_lge0 // lt_neqAle eq_sym nonzero dot_ge0.
Qed.

(** The belief after a text that can occur. *)
Lemma posterior_belief n (x : text X n) : 0 < Pr M x -> belief (posterior M x ord0).
Proof.
move=> possible; split=> [h|].
  by rewrite divr_ge0 ?(ltW possible) // joint_first mulr_ge0 ?initial_ge0 ?back_ge0.
by rewrite -big_distrl /= -Pr_joint divff ?lt0r_neq0.
Qed.

Section PositiveStart.

Hypothesis positive : forall h, 0 < initial M h.

Lemma reweighted_posterior (c : H -> R) n (x : text X n) : 0 < Pr M x ->
  let norm := \sum_h c h * back M (evidence M x) h in
  let d h := c h / initial M h in
  dot d (posterior M x ord0) = norm / Pr M x /\
  reweighted d (posterior M x ord0) =1
    fun w => if norm == 0 then 0 else \sum_h W w h * (c h * back M (evidence M x) h / norm).
Proof.
move=> possible norm d; have term h : d h * posterior M x ord0 h = c h * back M (evidence M x) h / Pr M x.
  by rewrite /posterior joint_first /d !mulrA divfK ?lt0r_neq0.
have dotE : dot d (posterior M x ord0) = norm / Pr M x.
  by rewrite /dot big_distrl; apply: eq_bigr => h _; exact: term.
split=> // w; have Pr0 := lt0r_neq0 possible.
rewrite /reweighted dotE mulf_eq0 invr_eq0 (negPf Pr0) orbF; case: eqP => // /eqP norm0.
rewrite big_distrl; apply: eq_bigr => h _; rewrite term.
by move: (back _ _ _) => y /=; field; rewrite Pr0 norm0.
Qed.

(** The first line of (O.2) for a head alone: the prediction at a mask in front of a text that can occur. *)
Lemma equation_O_2_head_alone n (x : text X n) : 0 < Pr M x ->
  G M [tuple of mask X :: x] ord0 =1 reweighted head_alone (posterior M x ord0).
Proof.
move=> possible w; have [_ ->] := reweighted_posterior (marginal M 1) possible.
rewrite G_in_front Pr_in_front.
under [X in _ / X]eq_bigr => h _ do rewrite /= mul1r.
set norm := \sum_h _; case: eqP => [->|_]; first by rewrite invr0 mulr0.
by rewrite big_distrl; apply: eq_bigr => h _; rewrite /= !mulrA.
Qed.

(** The first line of (O.2) with a prompt: the prediction at the gap between the prompt and the text. *)
Lemma equation_O_2_with_prompt u n (x : text X n) : 0 < Pr M x ->
  Gbar M (prompted M u x) (gap n) =1 reweighted (with_prompt u) (posterior M x ord0).
Proof.
move=> possible w; have [_ ->] := reweighted_posterior (conditioned M u) possible.
rewrite /Gbar; under [X in if X == 0 then _ else _]eq_bigr => h _ do rewrite tau_gap.
case: eqP => // _; apply: eq_bigr => h _; rewrite tau_gap; congr (_ * (_ / _)).
by apply: eq_bigr => k _; rewrite tau_gap.
Qed.

Lemma head_alone_ge0 h : 0 <= head_alone h.
Proof. by rewrite divr_ge0 ?marginal_ge0 ?initial_ge0. Qed.

Lemma with_prompt_ge0 u : (forall h, 0 <= u h) -> forall h, 0 <= with_prompt u h.
Proof.
move=> u0 h; rewrite divr_ge0 ?initial_ge0 //; apply: sumr_ge0 => k _.
by rewrite mulr_ge0 ?transition_ge0 // mulr_ge0 ?marginal_ge0.
Qed.

Lemma with_prompt_scale r u h : with_prompt (fun k => r * u k) h = r * with_prompt u h.
Proof.
rewrite /with_prompt mulrA; congr (_ / _); rewrite /conditioned /step big_distrr; apply: eq_bigr => k _ /=.
ring.
Qed.

(** Any prompt can be scaled so that its entries are probabilities. *)
Lemma prompt_scale (u : embedding R H) : (forall h, 0 <= u h) ->
  exists2 r, 0 < r & forall h, 0 <= r * u h <= 1.
Proof.
move=> u0; have S0 : 0 <= \sum_h u h by apply: sumr_ge0.
have S1 : 0 < 1 + \sum_h u h by rewrite lt_sum ?ltr01.
exists (1 + \sum_h u h)^-1 => [|h]; rewrite ?invr_gt0 // mulr_ge0 ?invr_ge0 ?(ltW S1) //=.
rewrite mulrC le_quotient // mul1r (bigD1 h) //= addrCA le_sum addr_ge0 ?ler01 //.
by apply: sumr_ge0.
Qed.

(** ** Theorem O.2: exactness *)

Lemma exactness mu b d : both_signs mu -> (forall h, 0 <= d h) ->
  right_for_every_belief mu b d <-> exists2 l, 0 < l & forall h, effective b d h = l * mu h.
Proof.
move=> both d0; split=> [right|[l l0 multiple] p bel].
  by apply: multiple_needed => // p bel; rewrite -score_label // right.
by rewrite score_label // (eq_dot p multiple) dot_scale pmulr_rge0.
Qed.

Lemma effective_multiple b (c mu : H -> R) l h :
  effective b (fun k => c k / initial M k) h = l * mu h <-> c h * column_score b h = l * (mu h * initial M h).
Proof.
have start := lt0r_neq0 (positive h); rewrite /effective mulrAC; split=> [|->]; last by rewrite mulrA mulfK.
by move/(congr1 ( *%R^~ (initial M h))); rewrite divfK // => ->; rewrite mulrA.
Qed.

Lemma head_scale r b h : column_score (fun w => r * b w) h = r * column_score b h.
Proof. exact: dot_scale. Qed.

(** Theorem O.2. Every state can be the start, and mu takes both signs, that is, it has a positive and a negative
    weight. The factor d is any vector without negative entries. The second part is about a head alone, and the third
    is about a prompt with a head. Both equations are written state by state. The prompt that is found has entries
    between 0 and 1, while the equation allows every u without negative entries, as the box does. That a text gives
    the predictions [reweighted head_alone p] and [reweighted (with_prompt u) p] is [equation_O_2_head_alone] and
    [equation_O_2_with_prompt], where p is the belief after the text. *)
Theorem theorem_O_2 (mu : H -> R) : both_signs mu ->
  [/\ forall b d, (forall h, 0 <= d h) ->
        (right_for_every_belief mu b d <-> exists2 l, 0 < l & forall h, effective b d h = l * mu h),
      (exists b, right_for_every_belief mu b head_alone) <->
        (exists b, forall h, marginal M 1 h * (\sum_w b w * W w h) = mu h * initial M h) &
      (exists u b, (forall h, 0 <= u h <= 1) /\ right_for_every_belief mu b (with_prompt u)) <->
        (exists u b, (forall h, 0 <= u h) /\
         forall h, (\sum_k A h k * (marginal M 1 k * u k)) * (\sum_w b w * W w h) = mu h * initial M h)].
Proof.
move=> both; have multiple c b l : 0 < l -> (forall h, effective b (fun k => c k / initial M k) h = l * mu h) ->
    forall h, c h * column_score (fun w => l^-1 * b w) h = mu h * initial M h.
  move=> l0 eff h; move/effective_multiple: (eff h) => eq.
  by rewrite head_scale mulrCA eq mulKf ?lt0r_neq0.
split=> [b d|| ]; first exact: exactness.
  split=> [[b /(exactness _ both head_alone_ge0) [l l0 eff]]|[b solves]].
    by exists (fun w => l^-1 * b w); apply: multiple l0 eff.
  exists b; apply/(exactness _ both head_alone_ge0); exists 1 => [|h]; first exact: ltr01.
  by apply/effective_multiple; rewrite mul1r -solves.
split=> [[u [b [bounds]]]|[u [b [u0 solves]]]].
  have u0 h : 0 <= u h by case/andP: (bounds h).
  case/(exactness _ both (with_prompt_ge0 u0)) => l l0 eff.
  by exists u, (fun w => l^-1 * b w); split=> //; apply: multiple l0 eff.
have [r r0 bounds] := prompt_scale u0.
exists (fun h => r * u h), b; split=> //.
apply/(exactness _ both (with_prompt_ge0 (fun h => proj1 (andP (bounds h))))); exists r => // h.
rewrite /effective with_prompt_scale -mulrA; congr (_ * _); rewrite -[RHS]mul1r.
by apply/effective_multiple; rewrite mul1r -solves.
Qed.

(** ** Theorem O.4: separable signs *)

(** The head scores the column of each state that the task weighs with the sign of its weight. *)
Definition right_signs (mu : H -> R) (b : X -> R) : Prop :=
  forall h, mu h != 0 -> Num.sg (\sum_w b w * W w h) = Num.sg (mu h).

(** The chain moves on by a permutation f of the states. *)
Definition permutation : Prop := exists2 f : H -> H, bijective f & forall h' h, A h' h = (h' == f h)%:R.

(** Theorem O.4. Every state can be the start. The first part holds for every prompt without negative entries, and the
    prompt of the second part has entries between 0 and 1. *)
Theorem theorem_O_4 (mu : H -> R) : both_signs mu ->
  (forall u b, (forall h, 0 <= u h) -> right_for_every_belief mu b (with_prompt u) -> right_signs mu b) /\
  (permutation -> forall b, right_signs mu b ->
   exists2 u, (forall h, 0 <= u h <= 1) & right_for_every_belief mu b (with_prompt u)).
Proof.
move=> both; split=> [u b u0 /(exactness _ both (with_prompt_ge0 u0)) [l l0 eff] h weighed|[f [g fK gK] moves] b signs].
  suff d0 : 0 < with_prompt u h.
    have := congr1 Num.sg (eff h).
    by rewrite [LHS]sgrM [RHS]sgrM (gtr0_sg l0) (gtr0_sg d0) !mul1r.
  rewrite lt_neqAle eq_sym with_prompt_ge0 // andbT; apply: contraNneq weighed => zero.
  have := eff h; rewrite /effective zero mul0r => /esym/eqP; rewrite mulf_eq0 => /orP [] // /eqP l_zero.
  by rewrite l_zero ltxx in l0.
have signs' h : mu h != 0 -> Num.sg (column_score b h) = Num.sg (mu h) := signs h.
pose ratio h := mu h / column_score b h.
have ratio_ge0 h : 0 <= ratio h.
  rewrite /ratio; have [->|weighed] := eqVneq (mu h) 0; first by rewrite mul0r lexx.
  by rewrite -sgr_ge0 sgrM sgrV (signs' _ weighed) -expr2 sqr_ge0.
have moved h : marginal M 1 h = initial M (g h).
  rewrite /marginal (eq_bigr (fun k => initial M k * (k == g h)%:R)) ?sum_at // => k _.
  by rewrite moves mulrC -(inj_eq (can_inj fK) k) gK eq_sym.
have marginal_gt0 h : 0 < marginal M 1 h by rewrite moved.
pose u h := ratio (f h) * initial M (f h) / marginal M 1 h.
have u0 h : 0 <= u h by apply: divr_ge0 (marginal_ge0 M 1 h); rewrite mulr_ge0 ?ratio_ge0 ?initial_ge0.
have [r r0 bounds] := prompt_scale u0.
exists (fun h => r * u h) => //.
apply/(exactness _ both (with_prompt_ge0 (fun h => proj1 (andP (bounds h))))); exists r => // h.
rewrite /effective with_prompt_scale -mulrA; congr (_ * _).
have -> : with_prompt u h = ratio h.
  rewrite /with_prompt /conditioned /step (eq_bigr (fun k => marginal M 1 k * u k * (k == g h)%:R)); last first.
    by move=> k _; rewrite moves mulrC -(inj_eq (can_inj fK) k) gK eq_sym.
  by rewrite sum_at /u gK [X in X / _]mulrC divfK ?lt0r_neq0 // mulfK ?lt0r_neq0.
rewrite /ratio; have [zero|nonzero] := eqVneq (column_score b h) 0; last by rewrite divfK.
rewrite zero mulr0; apply/eqP; rewrite eq_sym; apply/negPn/negP => weighed.
have := signs' _ weighed; rewrite zero sgr0 => /esym/eqP.
by rewrite sgr_eq0 (negPf weighed).
Qed.

End PositiveStart.

End Solvable.
