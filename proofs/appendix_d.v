(** * Section 4.2 and Appendix D: a prompt and an attention head *)

From mathcomp Require Import all_ssreflect all_algebra ring.
From hmm Require Import definitions messages left_inverse section_3 appendix_c attention section_4.

Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.

Import GRing.Theory Num.Theory Order.Theory.
Local Open Scope ring_scope.

Section Lifted.

Variables (R : realFieldType) (N : nat) (V S X : finType) (M : memory_hmm R N V S X).
Notation state := (state N S).
Notation memory := (memory N V).

(** The lifted state: all values of the memory, and the hidden state. *)
Definition lifted_state : finType := [finType of memory * state].

Definition lifted_initial (l : lifted_state) : R := prior M l.1 * start M l.2.
Definition lifted_transition (l' l : lifted_state) : R := move M l'.2 l.2 * (l'.1 == l.1)%:R.
Definition lifted_emission (x : X) (l : lifted_state) : R := words M x (l.1 l.2.1) l.2.

Fact lifted_initial_ge0 l : 0 <= lifted_initial l.
Proof. by rewrite mulr_ge0 ?prior_ge0 ?start_ge0. Qed.

Fact lifted_transition_ge0 l' l : 0 <= lifted_transition l' l.
Proof. by rewrite mulr_ge0 ?move_ge0 ?ler0n. Qed.

Fact lifted_emission_ge0 x l : 0 <= lifted_emission x l.
Proof. exact: words_ge0. Qed.

Fact lifted_initial_sum : \sum_l lifted_initial l = 1.
Proof.
rewrite -(pair_big predT predT (fun m h => prior M m * start M h)) /= -[RHS](prior_sums_to_1 M).
by apply: eq_bigr => m _; rewrite -big_distrr /= start_sums_to_1 mulr1.
Qed.

(** A sum over lifted states that keep the memory m. *)
Lemma sum_same (m : memory) (F : lifted_state -> R) :
  \sum_l (l.1 == m)%:R * F l = \sum_h F (m, h).
Proof.
rewrite (eq_bigr (fun l : lifted_state => (l.1 == m)%:R * F (l.1, l.2))) => [|[m' h] _ //].
rewrite -(pair_big predT predT (fun (m' : memory) (h : state) => (m' == m)%:R * F (m', h))) /=.
rewrite (bigD1 m) //= [X in _ + X]big1 ?addr0 => [|m' /negPf ->].
  by apply: eq_bigr => h _; rewrite eqxx mul1r.
by rewrite big1 // => h _; rewrite mul0r.
Qed.

Fact lifted_transition_sum l : \sum_l' lifted_transition l' l = 1.
Proof.
rewrite (eq_bigr (fun l' => (l'.1 == l.1)%:R * move M l'.2 l.2)); last by move=> l' _; rewrite mulrC.
by rewrite sum_same move_sums_to_1.
Qed.

Fact lifted_emission_sum l : \sum_x lifted_emission x l = 1.
Proof. exact: words_sums_to_1. Qed.

Definition lifted : hmm R lifted_state X :=
  Hmm lifted_initial_ge0 lifted_transition_ge0 lifted_emission_ge0
    lifted_initial_sum lifted_transition_sum lifted_emission_sum.

(** Lifting, before (D.4), and reverse lifting (D.4). *)
Definition lift_up (v : V -> state -> R) : lifted_state -> R := fun l => v (l.1 l.2.1) l.2.

Definition lift_down (f : lifted_state -> R) (v : V) (h : state) : R :=
  (#|V| ^ N.-1)%:R^-1 * \sum_(m : memory | m h.1 == v) f (m, h).

(** The model on embeddings. *)
Definition mGbar n (e : n.-tuple (lifted_state -> R)) (i : 'I_n) (w : X) : R :=
  let norm := \sum_h \sum_v lift_down (tau lifted e i) v h in
  if norm == 0 then 0 else \sum_h \sum_v words M w v h * (lift_down (tau lifted e i) v h / norm).

(** A prompt in front of a text, and the embeddings that the head gets. *)
Definition mprompted n (u : lifted_state -> R) (x : text X n) : n.+1.-tuple (lifted_state -> R) :=
  [tuple of u :: map_tuple (fun token => lift_up (membed M token)) x].

Lemma card_cell (k : 'I_N) (v : V) : #|[pred m : memory | m k == v]| = (#|V| ^ N.-1)%N.
Proof.
rewrite (@eq_card _ _ (family (fun k' => if k' == k then pred1 v else predT))); last first.
  move=> m; rewrite !inE; apply/eqP/familyP => [mk k'|/(_ k)]; last by rewrite eqxx => /eqP.
  by case: eqP => [->|_] //; rewrite inE mk.
rewrite card_family foldrE big_map big_enum /= (bigD1 k) //= eqxx card1 mul1n.
rewrite (eq_bigr (fun=> #|V|)) => [|k' /negPf ->]; last by apply: eq_card.
by rewrite prod_nat_const cardC1 card_ord.
Qed.

Lemma lift_down_up (v' : V -> state -> R) v h : (0 < #|V|)%N -> lift_down (lift_up v') v h = v' v h.
Proof.
move=> nonempty; rewrite /lift_down /lift_up /=.
rewrite (eq_bigr (fun=> v' v h)) => [|m /eqP -> //].
rewrite sumr_const card_cell -[v' v h *+ _]mulr_natr mulrC mulfK //.
by rewrite pnatr_eq0 expn_eq0 negb_and -lt0n nonempty.
Qed.

(** ** The lifted chain keeps its memory. *)

Definition restrict (m : memory) (e : seq (lifted_state -> R)) : seq (state -> R) :=
  [seq (fun h => v (m, h)) | v <- e].

Lemma back_lifted e m h : back lifted e (m, h) = back (given M m) (restrict m e) h.
Proof.
elim: e h => [|v e IH] h //=.
rewrite (eq_bigr (fun l => (l.1 == m)%:R * (move M l.2 h * v l * back lifted e l))); last first.
  by move=> [m' h'] _; rewrite /lifted_transition /=; ring.
by rewrite sum_same; apply: eq_bigr => h' _; rewrite IH.
Qed.

Lemma from_left_ext (M' : hmm R state X) a a' e h : a =1 a' -> from_left M' a e h = from_left M' a' e h.
Proof.
elim: e a a' h => [|v e IH] a a' h eq /=; first exact: eq.
by apply: IH => h'; apply: eq_bigr => h0 _; rewrite eq.
Qed.

Lemma from_left_scale (M' : hmm R state X) r a e h :
  from_left M' (fun h' => r * a h') e h = r * from_left M' a e h.
Proof.
elim: e a h => [|v e IH] a h //=; rewrite -IH.
by apply: from_left_ext => h'; rewrite big_distrr; apply: eq_bigr => h0 _ /=; ring.
Qed.

Lemma from_left_lifted a e m h :
  from_left lifted a e (m, h) = from_left (given M m) (fun h' => a (m, h')) (restrict m e) h.
Proof.
elim: e a h => [|v e IH] a h //=; rewrite IH; apply: from_left_ext => h'.
rewrite (eq_bigr (fun l => (l.1 == m)%:R * (move M h' l.2 * (a l * v l)))); last first.
  by move=> [m' h0] _; rewrite /lifted_transition /= eq_sym; ring.
by rewrite sum_same.
Qed.

(** ** What a prompt leaves of the memory *)

Section Prompted.

Variables (j : 'I_N) (D : {pred S}) (mu : V -> R).

(** (D.6): the prompt rules out memories whose value in the task's cell has no weight. *)
Definition kept (m : memory) : R := (mu (m j) != 0)%:R.
Definition prompt : lifted_state -> R := fun l => kept l.1.

(** What it leaves of the prior. *)
Definition left_over (m : memory) : R := kept m * prior M m.

Lemma left_over_ge0 m : 0 <= left_over m.
Proof. by rewrite mulr_ge0 ?ler0n ?prior_ge0. Qed.

Hypothesis is_stationary : stationary M.

Lemma marginal_stationary m k h : marginal (given M m) k h = start M h.
Proof.
elim: k h => [|k IH] h //=; rewrite -[RHS]is_stationary.
by apply: eq_bigr => h0 _; rewrite IH.
Qed.

Lemma marginal_lifted k m h : marginal lifted k (m, h) = prior M m * marginal (given M m) k h.
Proof.
elim: k h => [|k IH] h //=.
rewrite (eq_bigr (fun l => (l.1 == m)%:R * (move M h l.2 * marginal lifted k l))); last first.
  by move=> [m' h0] _; rewrite /lifted_transition /= eq_sym; ring.
by rewrite sum_same big_distrr; apply: eq_bigr => h0 _ /=; rewrite IH; ring.
Qed.

Lemma restrict_text m n (x : text X n) :
  restrict m (map_tuple (fun token => lift_up (membed M token)) x) = evidence (given M m) x.
Proof. by rewrite /restrict /= -map_comp; apply: eq_map; case. Qed.

Local Arguments marginal : simpl never.

Variables (n : nat) (x : text X n).
Notation e := (mprompted prompt x).

(** Lemma D.7 and Proposition D.8 in one: behind the prompt, the aggregated message is that without it, for the
    memories that the prompt leaves. *)
Lemma tau_prompted (i : 'I_n) m h :
  tau lifted e (lift ord0 i) (m, h) =
  left_over m * joint (given M m) (put x i (mask X)) (lift ord0 i) h.
Proof.
have -> : joint (given M m) (put x i (mask X)) (lift ord0 i) h = tau (given M m) (evidence (given M m) x) i h.
  by rewrite lemma_C_1 /joint -/(evidence _ _) evidence_put.
rewrite !tau_formula back_lifted from_left_lifted.
have -> : restrict m (drop (lift ord0 i).+1 e) = drop i.+1 (evidence (given M m) x).
  by rewrite -restrict_text /restrict -map_drop.
have -> : restrict m (take (lift ord0 i) e) = (fun=> kept m) :: take i (evidence (given M m) x).
  by rewrite -restrict_text /restrict -map_take.
rewrite mulrA; congr (_ * _) => /=; rewrite -from_left_scale; apply: from_left_ext => h'.
rewrite /left_over [RHS]mulrC marginal_stationary -[start M h'](marginal_stationary m 2).
rewrite [marginal _ 2]/marginal -/(marginal (given M m) 1) big_distrl /=.
by apply: eq_bigr => h0 _; rewrite marginal_lifted marginal_stationary is_stationary; ring.
Qed.

Lemma V_nonempty (m : memory) : (0 < #|V|)%N.
Proof. by apply/card_gt0P; exists (m j). Qed.

Lemma lift_down_tau (i : 'I_n) v h :
  lift_down (tau lifted e (lift ord0 i)) v h =
  (#|V| ^ N.-1)%:R^-1 * word_joint M left_over x i v h.
Proof. by congr (_ * _); apply: eq_bigr => m _; exact: tau_prompted. Qed.

(** Behind the prompt, the model predicts as a model whose prior is what the prompt leaves. *)
Lemma mGbar_prompted (i : 'I_n) w : mGbar e (lift ord0 i) w = mG M left_over x i w.
Proof.
have [m _] : exists m : memory, true.
  case: (pickP (@predT memory)) => [m _|none]; first by exists m.
  by have /eqP := prior_sums_to_1 M; rewrite big_pred0 // eq_sym oner_eq0.
set r : R := (#|V| ^ N.-1)%:R^-1.
have r_gt0 : 0 < r by rewrite invr_gt0 ltr0n expn_gt0 V_nonempty.
rewrite /mGbar.
have norm : \sum_h \sum_v lift_down (tau lifted e (lift ord0 i)) v h = r * mPr M left_over (put x i (mask X)).
  rewrite (elsewhere_sum M left_over x i) big_distrr /=; apply: eq_bigr => h _.
  by rewrite big_distrr /=; apply: eq_bigr => v _; rewrite lift_down_tau.
rewrite norm mulf_eq0 (gt_eqF r_gt0) /=; case: eqP => [zero|/eqP nonzero].
  by rewrite /mG zero invr0 mulr0.
rewrite /mG (proposition_D_1 M left_over x i (Some w)) [RHS]big_distrl /=; apply: eq_bigr => h _.
rewrite [RHS]big_distrl /=; apply: eq_bigr => v _; rewrite lift_down_tau -/r.
by field; rewrite nonzero gt_eqF.
Qed.

(** The prediction at the prompt itself is at most 1. *)
Lemma tau_prompted_ge0 i l : 0 <= tau lifted e i l.
Proof.
rewrite lemma_C_1; apply: sumr_ge0 => l0 _; apply: sumr_ge0 => p _.
apply: mulr_ge0.
  by apply: mulr_ge0; [exact: initial_ge0 | apply: prodr_ge0 => k _; exact: transition_ge0].
apply: prodr_ge0 => k _; rewrite tnth_mktuple; case: (k == i); first exact: ler01.
case: (unliftP ord0 k) => [k' ->|->]; last by rewrite tnth0 ler0n.
by rewrite tnthS tnth_map /lift_up /membed; case: (tnth x k') => [w|]; [exact: words_ge0 | exact: ler01].
Qed.

Lemma words_le1 w v h : words M w v h <= 1.
Proof.
rewrite -(words_sums_to_1 M v h) (bigD1 w) //= ler_addl sumr_ge0 // => w' _; exact: words_ge0.
Qed.

Lemma mGbar_bound i w : `|mGbar e i w| <= 1.
Proof.
have down_ge0 v h : 0 <= lift_down (tau lifted e i) v h.
  rewrite mulr_ge0 ?invr_ge0 ?ler0n // sumr_ge0 // => m _; exact: tau_prompted_ge0.
rewrite /mGbar; case: eqP => [_|/eqP nonzero]; first by rewrite normr0 ler01.
set norm := \sum_h \sum_v _ in nonzero *.
have norm_gt0 : 0 < norm.
  rewrite lt_neqAle eq_sym nonzero sumr_ge0 // => h _; rewrite sumr_ge0 // => v _; exact: down_ge0.
rewrite ger0_norm; last first.
  apply: sumr_ge0 => h _; apply: sumr_ge0 => v _.
  by rewrite mulr_ge0 ?words_ge0 // divr_ge0 ?down_ge0 // ltW.
rewrite -[leRHS](divff nonzero) {2}/norm big_distrl /=; apply: ler_sum => h _.
rewrite big_distrl /=; apply: ler_sum => v _.
by rewrite ler_pimull ?words_le1 // divr_ge0 ?down_ge0 // ltW.
Qed.

End Prompted.

(** Theorem D.6, and Theorem 4.6 if there is one cell: with one prompt and one attention head, the label is right on
    every text with a sure position. The prompt and the lifted embeddings have an entry for each lifted state. *)
Theorem theorem_D_6 (j : 'I_N) (D : {pred S}) (mu : V -> R) :
  stationary M -> assumption_D_5 M mu j D ->
  exists u : lifted_state -> R, (forall l, 0 <= u l <= 1) /\
  exists a : attention_head R N V S X [finType of unit],
  forall n (x : text X n), 0 < mPr M (prior M) x -> (exists i, sure M (prior M) j D x i) ->
  mlabel M (prior M) mu j x =
    (0 <= attention a (mGbar (mprompted u x)) (fun i => lift_down (tnth (mprompted u x) i))).
Proof.
move=> is_stationary assumed.
have [key keyP] := key_exists assumed.
have [recover recoverP] := recover_exists assumed.
pose omega := left_over j mu.
have omega_ge0 (m : memory) : 0 <= omega m by exact: left_over_ge0.
pose P (v : V) (h : state) := (h.1 == j) ==> (mu v != 0).
have all_P (m : memory) (h : state) : omega m != 0 -> P (m h.1) h.
  rewrite /P /omega /left_over mulf_eq0 negb_or /kept => /andP [kept_m _].
  by apply/implyP => /eqP ->; move: kept_m; rewrite pnatr_eq0; case: (mu (m j) != 0).
pose bound := \sum_w `|key w|.
pose offset i : R := if i == 0%N then - (1 + bound) else 0.
pose a := head j D key recover mu offset.
exists (prompt j mu); split=> [l|]; first by rewrite /prompt /kept; case: (_ != 0); rewrite !(lexx, ler01).
exists a => n x possible [i0 sure0].
pose e := mprompted (prompt j mu) x.
have predicted i w : mGbar e (lift ord0 i) w = mG M omega x i w by exact: mGbar_prompted.
have V_gt0 : (0 < #|V|)%N.
  case: (pickP (@predT memory)) => [m _|none]; first exact: (V_nonempty j m).
  by have /eqP := prior_sums_to_1 M; rewrite big_pred0 // eq_sym oner_eq0.
have embedded i v h : lift_down (tnth e (lift ord0 i)) v h = membed M (tnth x i) v h.
  by rewrite tnthS tnth_map lift_down_up.
have score_later i : score a (mGbar e) (lift ord0 i) = recoverable_given M omega j D x i.
  rewrite score_head /offset /= addr0 -(@key_score _ _ _ _ _ M omega j D P key all_P keyP).
  by apply: eq_bigr => w _; rewrite predicted.
have recoverable_ge0 i : 0 <= recoverable_given M omega j D x i.
  rewrite divr_ge0 ?sumr_ge0 // => [h _|m _]; last by rewrite mulr_ge0 ?omega_ge0 ?Pr_ge0.
  by rewrite sumr_ge0 // => v _; exact: word_joint_ge0.
have score_first : score a (mGbar e) ord0 < 0.
  rewrite score_head /offset /=.
  have le : \sum_w key w * mGbar e ord0 w <= bound.
    apply: ler_sum => w _; apply: le_trans (ler_norm _) _; rewrite normrM.
    by rewrite ler_pimulr ?normr_ge0 // mGbar_bound.
  by rewrite subr_lt0 (le_lt_trans le) // ltr_addr ltr01.
have first_not_attended : ord0 \notin attended a (mGbar e).
  rewrite inE; apply/negP => /forallP /(_ (lift ord0 i0)); rewrite score_later => le.
  by have := le_lt_trans le score_first; rewrite ltNge recoverable_ge0.
pose A := [set i | lift ord0 i \in attended a (mGbar e)].
pose mean := (\sum_(i in A) value a (mG M omega x i) (membed M (tnth x i))) / #|A|%:R.
have attention_mean : attention a (mGbar e) (fun i => lift_down (tnth e i)) = mean.
  rewrite /attention /mean.
  have -> : #|attended a (mGbar e)| = #|A|.
    rewrite -(card_imset (mem A) (@lift_inj _ ord0)); apply: eq_card => i.
    apply/idP/imsetP => [in_att|[k in_A ->]]; last by move: in_A; rewrite inE.
    case: (unliftP ord0 i) => [k eq|eq]; last by rewrite eq (negPf first_not_attended) in in_att.
    by exists k => //; rewrite inE -eq.
  congr (_ / _); rewrite [LHS]big_mkcond [RHS]big_mkcond big_ord_recl /= (negPf first_not_attended) add0r.
  apply: eq_bigr => i _; rewrite [i \in A]inE; case: ifP => // _.
  rewrite /value; apply: eq_bigr => p _; congr (_ * (_ * _)).
    by apply: eq_bigr => w _; rewrite predicted.
  exact: embedded.
have target_kept : target M omega j mu x = target M (prior M) j mu x.
  apply: eq_bigr => v _; have [->|nonzero] := eqVneq (mu v) 0; first by rewrite !mul0r.
  congr (_ * _); apply: eq_bigr => m /eqP eq.
  by rewrite /omega /left_over /kept eq nonzero mul1r.
rewrite attention_mean /mlabel.
have -> : \sum_v mu v * cell_posterior M (prior M) x j v = target M (prior M) j mu x / mPr M (prior M) x.
  by rewrite /target big_distrl /=; apply: eq_bigr => v _; rewrite /cell_posterior mulrA.
rewrite pmulr_lge0 ?invr_gt0 // -target_kept.
have [zero|nonzero] := eqVneq (mPr M omega x) 0.
  rewrite /mean big1 ?mul0r ?lexx => [|i _]; last first.
    exact: (@value_impossible _ _ _ _ _ M omega omega_ge0 j D P key recover mu all_P recoverP _ x offset i zero).
  rewrite /target big1 ?lexx // => v _.
  have cell_ge0 v' : 0 <= cell_joint M omega x j v'.
    by apply: sumr_ge0 => m _; apply: mulr_ge0; [exact: omega_ge0 | exact: Pr_ge0].
  have cells : \sum_v' cell_joint M omega x j v' = 0 by rewrite -[RHS]zero /mPr [RHS](by_value j).
  have -> : cell_joint M omega x j v = 0; last by rewrite mulr0.
  by apply: (psumr_eq0P _ cells) => // v' _; exact: cell_ge0.
have possible_kept : 0 < mPr M omega x.
  rewrite lt_neqAle eq_sym nonzero; by apply: sumr_ge0 => m _; apply: mulr_ge0; [exact: omega_ge0 | exact: Pr_ge0].
have sure_kept : sure M omega j D x i0.
  apply/forallP => h; apply/implyP => some; have /forallP/(_ h)/implyP := sure0; apply.
  apply: contra some => /eqP zero; apply/eqP; rewrite big1 // => v _; rewrite /word_joint big1 // => m /eqP eq.
  have word_ge0 v' : 0 <= word_joint M (prior M) x i0 v' h by apply: word_joint_ge0; exact: prior_ge0.
  have word0 : word_joint M (prior M) x i0 v h = 0 by apply: (psumr_eq0P _ zero) => // v' _; exact: word_ge0.
  have term0 : prior M m * joint (given M m) (put x i0 (mask X)) (lift ord0 i0) h = 0.
    apply: (psumr_eq0P _ word0) => [m' _|]; last by rewrite eq.
    by rewrite mulr_ge0 ?prior_ge0 ?joint_ge0.
  by rewrite /omega /left_over -mulrA term0 mulr0.
symmetry; apply: (@mean_sign _ _ _ _ _ M omega omega_ge0 j D P key recover mu all_P recoverP) => //.
  exists i0; rewrite !inE; apply/forallP => i; rewrite score_later.
  have -> : recoverable_given M omega j D x i0 = 1.
    by apply/eqP; rewrite -sure_given.
  case: (unliftP ord0 i) => [k ->|->]; last by rewrite (le_trans (ltW score_first)) ?ler01.
  by rewrite score_later recoverable_given_le1.
move=> i; rewrite !inE => /forallP /(_ (lift ord0 i0)); rewrite !score_later.
have -> : recoverable_given M omega j D x i0 = 1 by apply/eqP; rewrite -sure_given.
move=> ge1; rewrite sure_given //; by rewrite eq_le recoverable_given_le1.
Qed.

End Lifted.

(** Theorem 4.6, in the case of one memory cell, is Theorem D.6 there. *)
Corollary theorem_4_6 (R : realFieldType) (V S X : finType) (M : memory_hmm R 1 V S X) (D : {pred S}) (mu : V -> R) :
  stationary M -> assumption_4_5 M mu D ->
  exists u : lifted_state 1 V S -> R, (forall l, 0 <= u l <= 1) /\
  exists a : attention_head R 1 V S X [finType of unit],
  forall n (x : text X n), 0 < mPr M (prior M) x -> (exists i, sure M (prior M) ord0 D x i) ->
  mlabel M (prior M) mu ord0 x =
    (0 <= attention a (mGbar M (mprompted M u x)) (fun i => lift_down (tnth (mprompted M u x) i))).
Proof. exact: theorem_D_6. Qed.
