(** * Appendix D.3: the lemmas about a prompt and a memory *)

From mathcomp Require Import all_ssreflect all_algebra ring.
From hmm Require Import ordered_fields definitions messages left_inverse section_3 appendix_c attention lifting.

Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.

Import GRing.Theory Num.Theory Order.Theory.
Local Open Scope ring_scope.

Section Lemmas.

Variables (R : realFieldType) (N : nat) (V S X : finType) (M : memory_hmm R N V S X).
Notation state := (state N S).
Notation memory := (memory N V).
Notation lifted_state := (lifted_state N V S).

Lemma sum_lifted (F : lifted_state -> R) : \sum_l F l = \sum_h \sum_m F (m, h).
Proof. by rewrite exchange_big pair_big; apply: eq_bigr => -[m h]. Qed.

(** ** Any prompt *)

(** A sum over lifted states, for weights that depend on the value in the cell of the state only. *)
Lemma rest_by_word n (u : lifted_state -> R) (x : text X n) i (F : V -> state -> R) :
  \sum_l rest_joint M u x i l * F (l.1 l.2.1) l.2 = \sum_h \sum_v F v h * rest_word M u x i v h.
Proof.
rewrite sum_lifted; apply: eq_bigr => h _; rewrite (by_value h.1); apply: eq_bigr => v _.
by rewrite /rest_word big_distrr; apply: eq_bigr => m /eqP <- /=; rewrite mulrC.
Qed.

Lemma rest_sum n (u : lifted_state -> R) (x : text X n) i :
  rest_Pr M u x i = \sum_h \sum_v rest_word M u x i v h.
Proof.
rewrite /rest_Pr (Pr_e_joint _ _ (lift ord0 i)).
rewrite (eq_bigr (fun l => rest_joint M u x i l * 1)) => [|l _]; last by rewrite mulr1.
rewrite (rest_by_word u x i (fun _ _ => 1)).
by apply: eq_bigr => h _; apply: eq_bigr => v _; exact: mul1r.
Qed.

(** Lemma D.7, with an entry of the prompt for each lifted state, where the paper prints one for each hidden state. A
    fake token stands in front of the text, and u is its emission. The entries of u may be any numbers. If they lie
    between 0 and 1, the sums over paths are probabilities. The first part is (D.5), for every position. The next two
    say that the prediction is the conditional probability of the token w, given what stands elsewhere, and that it
    mixes the columns of W. The paper says so of the positions behind the prompt. At the prompt's own position it
    holds, too, if w is emitted there as it is elsewhere. The last part says that the prediction is 0 where what
    stands elsewhere is impossible. *)
Lemma lemma_D_7 n (u : lifted_state -> R) (x : text X n) (i : 'I_n.+1) :
  let e := mprompted M u x in
  [/\ forall m h, tau (lifted M) e i (m, h) =
        joint_e (lifted M) (replace e i (@one R lifted_state)) (lift ord0 i) (m, h),
      rest_Pr M u x i != 0 -> forall w,
        mGbar M e i w = Pr_e (lifted M) (replace e i (lifted_emission M w)) / rest_Pr M u x i,
      rest_Pr M u x i != 0 -> forall w,
        mGbar M e i w = mixture M (fun v h => rest_word M u x i v h / rest_Pr M u x i) w &
      rest_Pr M u x i = 0 -> forall w, mGbar M e i w = 0].
Proof.
move=> e; set r : R := (#|V| ^ N.-1)%:R^-1.
have r_neq0 : r != 0 by rewrite invr_eq0 pnatr_eq0 expn_eq0 negb_and -lt0n (V_nonempty M).
have down v h : lift_down (tau (lifted M) e i) v h = r * rest_word M u x i v h.
  by congr (_ * _); apply: eq_bigr => m _; exact: tau_joint.
have norm : \sum_h \sum_v lift_down (tau (lifted M) e i) v h = r * rest_Pr M u x i.
  rewrite rest_sum big_distrr; apply: eq_bigr => h _.
  by rewrite big_distrr; apply: eq_bigr => v _; exact: down.
have mixed : rest_Pr M u x i != 0 -> forall w,
    mGbar M e i w = mixture M (fun v h => rest_word M u x i v h / rest_Pr M u x i) w.
  move=> possible w; rewrite /mGbar norm mulf_eq0 (negPf r_neq0) (negPf possible) /=.
  apply: eq_bigr => h _; apply: eq_bigr => v _; rewrite down; field; by rewrite possible.
split=> [m h|possible w|//|zero w]; first exact: tau_joint.
  rewrite mixed // (Pr_e_joint _ _ (lift ord0 i)).
  rewrite (eq_bigr (fun l => rest_joint M u x i l * words M w (l.1 l.2.1) l.2)) => [|l _]; last first.
    by rewrite joint_replace tau_joint.
  rewrite (rest_by_word u x i (words M w)) /mixture big_distrl; apply: eq_bigr => h _.
  by rewrite big_distrl; apply: eq_bigr => v _ /=; rewrite mulrA.
by rewrite /mGbar norm zero mulr0 eqxx.
Qed.

(** ** A stationary start *)

Lemma lifted_stationary : stationary M -> step (lifted M) (initial (lifted M)) =1 initial (lifted M).
Proof.
move=> is_stationary [m h]; rewrite /step.
rewrite (eq_bigr (fun l => (l.1 == m)%:R * (move M h l.2 * lifted_initial M l))) => [|[m' h'] _]; last first.
  by rewrite /= /lifted_transition /= eq_sym; ring.
rewrite sum_same /= /lifted_initial /= -is_stationary big_distrr; apply: eq_bigr => h' _ /=; ring.
Qed.

(** Proposition D.8: memory, a later state and the text that follows it have the same joint probability as memory, the
    first state and the text that follows that one. Both are sums over paths. The k positions up to the later state
    hold masks, so no token there is given. The chain need not be ergodic, and k and the length of the text may also
    be 0. *)
Lemma proposition_D_8 : stationary M -> forall k n (x : text X n) m h,
  joint (lifted M) [tuple of nseq k (mask X) ++ x] (inord k) (m, h) = joint (lifted M) x ord0 (m, h).
Proof.
move=> is_stationary k n x m h; rewrite /joint !joint_weighted weighted_first weighted_fwd.
rewrite inordK ?ltnS ?leq_addr //= map_cat map_nseq take_size_cat ?size_nseq // drop_size_cat ?size_nseq //.
congr (_ * _); suff still a : a =1 initial (lifted M) ->
    fwd (lifted M) a (nseq k (embed (lifted M) (mask X))) =1 initial (lifted M) by exact: still.
elim: k a => [//|k IH] a eq /=; apply: IH => l; rewrite mulr1 -[RHS](lifted_stationary is_stationary).
by apply: eq_bigr => l' _; rewrite eq.
Qed.

(** ** The prompt of (D.6) *)

Section Prompted.

Variables (j : 'I_N) (D : {pred S}) (mu : V -> R).
Notation u := (prompt j mu).
Notation omega := (left_over M j mu).

Section Text.

Variables (n : nat) (x : text X n).
Notation e := (mprompted M u x).

Lemma rest_word_ge0 i v h : 0 <= rest_word M u x i v h.
Proof. by apply: sumr_ge0 => m _; rewrite /rest_joint -tau_joint tau_prompted_ge0. Qed.

Lemma rest_joint_kept (i : 'I_n) (m : memory) h : mu (m j) = 0 -> rest_joint M u x (lift ord0 i) (m, h) = 0.
Proof. by move=> zero; rewrite /rest_joint -tau_joint tau_kept // /kept zero eqxx. Qed.

(** Proposition D.11: behind the prompt, the values of the task's cell that have no weight are impossible. A joint
    probability stands in place of the conditional one, so nothing is asked of the rest, and the start need not be
    stationary. *)
Lemma proposition_D_11 (i : 'I_n) v : mu v = 0 -> rest_cell M u x (lift ord0 i) j v = 0.
Proof.
move=> zero; rewrite /rest_cell big1 // => m /eqP eq; rewrite big1 // => h _.
by rewrite rest_joint_kept // eq.
Qed.

End Text.

(** Claim D.10: behind the prompt, linear maps recover from the prediction how probable the recoverable states are,
    alone and with the memory, wherever the rest is possible. The first one gives a vector whose absolute values sum
    to 1. The paper asks for a stationary start, too, but it is not needed. *)
Lemma claim_D_10 : assumption_D_5 M mu j D ->
  exists (Theta1 : state -> X -> R) (Theta2 : V -> state -> X -> R),
  forall n (x : text X n) (i : 'I_n), let i' := lift ord0 i in 0 < rest_Pr M u x i' ->
  let g := mGbar M (mprompted M u x) i' in
  [/\ forall h, recoverable j D h -> \sum_w Theta1 h w * g w = rest_state M u x i' h / rest_Pr M u x i',
      \sum_h `|\sum_w Theta1 h w * g w| = 1 &
      forall v h, recoverable j D h -> \sum_w Theta2 v h w * g w = rest_word M u x i' v h / rest_Pr M u x i'].
Proof.
move=> assumed; have [Theta1 [Theta2 read]] := read_outs assumed; exists Theta1, Theta2 => n x i i' possible g.
have neq0 := lt0r_neq0 possible.
have [|||w|alone total with_memory] := read (fun v h => rest_word M u x i' v h / rest_Pr M u x i') g.
- by move=> v h; rewrite divr_ge0 ?rest_word_ge0 // ltW.
- rewrite -[RHS](divff neq0) [X in _ = X / _]rest_sum big_distrl; apply: eq_bigr => h _ /=.
  by rewrite big_distrl.
- move=> v h; rewrite negb_imply negbK => /andP [/eqP hj /eqP zero].
  rewrite /rest_word big1 ?mul0r // => m /eqP; rewrite hj => eq; by rewrite rest_joint_kept ?eq.
- by have [_ _ mixed _] := lemma_D_7 u x i'; exact: (mixed neq0 w).
split=> // h r; rewrite alone // -big_distrl /=; congr (_ / _).
by rewrite /rest_state (by_value h.1).
Qed.

(** ** Behind the prompt, the model is one with another prior *)

(** From here on the start is stationary, as in the setting of Theorem D.6. *)
Hypothesis is_stationary : stationary M.

Section Text.

Variables (n : nat) (x : text X n).
Notation e := (mprompted M u x).
Notation elsewhere i := (mPr M omega (put x i (mask X))).

Lemma rest_word_prompted (i : 'I_n) v h : rest_word M u x (lift ord0 i) v h = word_joint M omega x i v h.
Proof. by apply: eq_bigr => m _; rewrite /rest_joint -tau_joint tau_prompted. Qed.

Lemma rest_state_prompted (i : 'I_n) h :
  rest_state M u x (lift ord0 i) h = \sum_v word_joint M omega x i v h.
Proof. by rewrite /rest_state (by_value h.1); apply: eq_bigr => v _; exact: rest_word_prompted. Qed.

Lemma rest_Pr_prompted (i : 'I_n) : rest_Pr M u x (lift ord0 i) = elsewhere i.
Proof.
rewrite rest_sum elsewhere_sum; apply: eq_bigr => h _; apply: eq_bigr => v _; exact: rest_word_prompted.
Qed.

Lemma sure_prompted (i : 'I_n) : sure_behind M u x (lift ord0 i) j D = sure M omega j D x i.
Proof. by apply: eq_forallb => h; rewrite rest_state_prompted. Qed.

(** The model predicts as a model whose prior is what the prompt leaves. *)
Lemma mGbar_prompted (i : 'I_n) w : mGbar M e (lift ord0 i) w = mG M omega x i w.
Proof.
have [_ _ mixed impossible] := lemma_D_7 u x (lift ord0 i); rewrite /mG.
have [zero|possible] := eqVneq (rest_Pr M u x (lift ord0 i)) 0.
  by rewrite impossible // -rest_Pr_prompted zero invr0 mulr0.
rewrite mixed // proposition_D_1 /mixture big_distrl; apply: eq_bigr => h _ /=.
by rewrite big_distrl; apply: eq_bigr => v _ /=; rewrite rest_word_prompted rest_Pr_prompted mulrA.
Qed.

Lemma value_prompted (K : finType) (a : attention_head R N V S X K) (i : 'I_n) :
  value a (mGbar M e (lift ord0 i)) (lift_down (tnth e (lift ord0 i))) =
  value a (mG M omega x i) (membed M (tnth x i)).
Proof.
apply: eq_bigr => p _; congr (_ * (_ * _)).
  by apply: eq_bigr => w _; rewrite mGbar_prompted.
by rewrite tnthS tnth_map (lift_down_up M).
Qed.

(** The probability of a whole text, behind a prompt that only depends on the memory. *)
Lemma joint_in_front (c : memory -> R) m :
  \sum_h joint_e (lifted M) (mprompted M (fun l : lifted_state => c l.1) x) ord0 (m, h) =
  c m * prior M m * Pr (given M m) x.
Proof.
rewrite (Pr_joint _ _ ord0) big_distrr.
transitivity (\sum_h \sum_h' c m * prior M m *
    (move M h' h * start M h * back (given M m) (evidence (given M m) x) h')).
  apply: eq_bigr => h _; rewrite joint_weighted weighted_first back_lifted [restrict _ _]/= restrict_text.
  by rewrite /= big_distrr; apply: eq_bigr => h' _; rewrite /= /lifted_initial /=; ring.
rewrite exchange_big; apply: eq_bigr => h' _ /=; rewrite -big_distrr joint_first -big_distrl /=.
by rewrite is_stationary.
Qed.

Lemma with_cell_prompted v : with_cell M u x j v = cell_joint M omega x j v.
Proof. by apply: eq_bigr => m _; rewrite (joint_in_front (kept j mu)). Qed.

Lemma with_Pr_prompted : with_Pr M u x = mPr M omega x.
Proof.
rewrite /with_Pr (Pr_e_joint _ _ ord0) sum_lifted exchange_big /=.
by apply: eq_bigr => m _; rewrite (joint_in_front (kept j mu)).
Qed.

(** Without the prompt, what is left is the text. *)
Lemma rest_Pr_first : rest_Pr M u x ord0 = mPr M (prior M) x.
Proof.
rewrite /rest_Pr (Pr_e_joint _ _ ord0) sum_lifted exchange_big /=; apply: eq_bigr => m _.
rewrite -[prior M m]mul1r -(joint_in_front (fun=> 1)); apply: eq_bigr => h _; congr joint_e.
apply: eq_from_tnth => i; rewrite tnth_mktuple; case: (unliftP ord0 i) => [k ->|->]; last by rewrite eqxx tnth0.
by rewrite eq_sym (negPf (neq_lift _ _)) !tnthS.
Qed.

Lemma mPr_ge0 : 0 <= mPr M omega x.
Proof. by apply: sumr_ge0 => m _; rewrite mulr_ge0 ?left_over_ge0 ?Pr_ge0. Qed.

(** If prompt and text can occur together, so they can if a position of the text is left out. *)
Lemma rest_possible (i : 'I_n) : with_Pr M u x != 0 -> 0 < rest_Pr M u x (lift ord0 i).
Proof.
rewrite rest_Pr_prompted with_Pr_prompted => nonzero.
by apply: elsewhere_gt0; [exact: left_over_ge0 | rewrite lt_neqAle eq_sym nonzero mPr_ge0].
Qed.

(** The target of the task, up to the probability of the text, is what it was without the prompt. *)
Lemma target_prompted : target M omega j mu x = target M (prior M) j mu x.
Proof.
apply: eq_bigr => v _; have [->|nonzero] := eqVneq (mu v) 0; first by rewrite !mul0r.
congr (_ * _); apply: eq_bigr => m /eqP eq.
by rewrite /left_over /kept eq nonzero mul1r.
Qed.

Lemma target_posterior : \sum_v mu v * cell_posterior M (prior M) x j v =
  target M omega j mu x / mPr M (prior M) x.
Proof.
by rewrite target_prompted /target big_distrl; apply: eq_bigr => v _; rewrite /cell_posterior /= mulrA.
Qed.

(** Claim D.12: prompt and text together leave only states possible that the text alone leaves possible. Joint
    probabilities stand in place of the conditional ones, so nothing is asked of the rest. Position i of the text
    stands one position later behind the prompt. *)
Lemma claim_D_12 (i : 'I_n) h :
  rest_state M u x (lift ord0 i) h != 0 -> \sum_v word_joint M (prior M) x i v h != 0.
Proof.
rewrite rest_state_prompted; apply: contra => /eqP zero.
have word_ge0 v : 0 <= word_joint M (prior M) x i v h by apply: word_joint_ge0; exact: prior_ge0.
rewrite big1 // => v _; have word0 : word_joint M (prior M) x i v h = 0.
  exact: (psumr_eq0P (fun v' _ => word_ge0 v') zero).
rewrite /word_joint big1 // => m eq; rewrite /left_over -mulrA (psumr_eq0P _ word0 eq) ?mulr0 // => m' _.
by rewrite mulr_ge0 ?prior_ge0 ?joint_ge0.
Qed.

(** So a position that is sure by the text alone stays sure. *)
Lemma sure_stays (i : 'I_n) : sure M (prior M) j D x i -> sure_behind M u x (lift ord0 i) j D.
Proof.
move=> /forallP is_sure; apply/forallP => h; apply/implyP => /claim_D_12; exact: implyP (is_sure h).
Qed.

(** Claim D.14: if prompt and text can occur together, the prompt divides the target by the conditional probability of
    the fake token, given the text. This is the probability of prompt and text, divided by that of the text alone,
    where the prompt is left out. *)
Lemma claim_D_14 : 0 < with_Pr M u x ->
  \sum_v mu v * (with_cell M u x j v / with_Pr M u x) =
  (\sum_v mu v * cell_posterior M (prior M) x j v) / (with_Pr M u x / rest_Pr M u x ord0).
Proof.
move=> possible; rewrite rest_Pr_first target_posterior.
have text_gt0 : 0 < mPr M (prior M) x.
  apply: lt_le_trans possible _; rewrite with_Pr_prompted; apply: ler_sum => m _.
  rewrite le_product ?Pr_ge0 // /left_over /kept; case: (_ != 0); by rewrite ?mul1r ?mul0r ?prior_ge0.
rewrite (eq_bigr (fun v => mu v * cell_joint M omega x j v / with_Pr M u x)) => [|v _]; last first.
  by rewrite with_cell_prompted mulrA.
rewrite -big_distrl /= -/(target _ _ _ _ _); field; by rewrite !lt0r_neq0.
Qed.

(** Claim D.15: if prompt and text exclude each other, the target is 0. The paper takes a text that can occur. Here it
    need not, because a division by 0 gives 0 in Rocq, and then the target is 0, too. And if the rest is impossible
    without what stands at position i, the prediction there is 0. This part needs no stationary start. *)
Lemma claim_D_15 :
  (with_Pr M u x = 0 -> \sum_v mu v * cell_posterior M (prior M) x j v = 0) /\
  (forall i, rest_Pr M u x i = 0 -> forall w, mGbar M e i w = 0).
Proof.
split=> [zero|i]; last by case: (lemma_D_7 u x i).
rewrite target_posterior /target big1 ?mul0r // => v _.
have cell_ge0 v' : 0 <= cell_joint M omega x j v'.
  by apply: sumr_ge0 => m _; rewrite mulr_ge0 ?left_over_ge0 ?Pr_ge0.
have cells : \sum_v' cell_joint M omega x j v' = 0 by rewrite -[RHS]zero with_Pr_prompted /mPr [RHS](by_value j).
by rewrite (psumr_eq0P (fun v' _ => cell_ge0 v') cells) ?mulr0.
Qed.

End Text.

(** Lemma D.9, corrected: a key and an offset at the prompt's position make the head attend exactly to the positions
    that are sure given prompt and text. The paper says that these are the positions that are sure by the text alone,
    but they only include them. Of the n + 1 positions, (D.7) takes the first n, and asks that the rest is possible if
    one of them is left out. Here these are the n positions behind the prompt. One entry of query and key is enough.
    The offset depends on the key, because the printed offset can be too small. With it the head never attends to the
    prompt's own position, even if (D.7) fails. *)
Lemma lemma_D_9 : assumption_D_5 M mu j D -> exists (key : X -> R) (offset : nat -> R),
  forall (recover : V * state -> X -> R) n (x : text X n), (exists i, sure M (prior M) j D x i) ->
  let attended_positions := attended (head j D key recover mu offset) (mGbar M (mprompted M u x)) in
  let sure_positions := [set lift ord0 i | i in [pred i : 'I_n | sure_behind M u x (lift ord0 i) j D]] in
  [/\ (forall i : 'I_n, 0 < rest_Pr M u x (lift ord0 i)) -> attended_positions = sure_positions,
      ord0 \notin attended_positions &
      forall i, sure M (prior M) j D x i -> lift ord0 i \in sure_positions].
Proof.
move=> assumed; have [key keyP] := key_exists assumed.
have omega_ge0 := left_over_ge0 M j mu; have all_P := left_over_weighed (M := M) (j := j) (mu := mu).
pose bound := \sum_w `|key w|.
exists key, (fun i => if i == 0%N then - (1 + bound) else 0) => recover n x [i0 sure0].
set a := head _ _ _ _ _ _; set e := mprompted M u x; move=> positions sure_positions.
have score_later i : score a (mGbar M e) (lift ord0 i) = recoverable_given M omega j D x i.
  rewrite score_head /= addr0 -(key_score all_P keyP).
  by apply: eq_bigr => w _; rewrite mGbar_prompted.
have given_ge0 i : 0 <= recoverable_given M omega j D x i.
  rewrite divr_ge0 ?mPr_ge0 ?sumr_ge0 // => h _.
  by rewrite sumr_ge0 // => v _; exact: word_joint_ge0.
have score_first : score a (mGbar M e) ord0 < 0.
  rewrite score_head /=.
  have le : \sum_w key w * mGbar M e ord0 w <= bound.
    apply: ler_sum => w _; apply: le_trans (ler_norm _) _; rewrite normrM.
    by rewrite mulrC -[leRHS]mul1r le_product ?normr_ge0 // mGbar_bound.
  by rewrite subr_lt0 (le_lt_trans le) // -subr_gt0 addrK ltr01.
have in_sure i : (lift ord0 i \in sure_positions) = sure_behind M u x (lift ord0 i) j D.
  by rewrite (mem_imset _ _ (@lift_inj _ ord0)) inE.
have first : ord0 \notin positions.
  rewrite inE; apply/negP => /forallP /(_ (lift ord0 i0)); rewrite score_later => le.
  by have := le_lt_trans le score_first; rewrite ltNge given_ge0.
split=> [possible|//|i]; last by rewrite in_sure; exact: sure_stays.
have given (i : 'I_n) : recoverable_given M omega j D x i <= 1 /\
    sure M omega j D x i = (recoverable_given M omega j D x i == 1).
  by apply: recoverable_given_rest => //; rewrite -rest_Pr_prompted.
have score0 : score a (mGbar M e) (lift ord0 i0) = 1.
  by apply/eqP; rewrite score_later -(given i0).2 -sure_prompted sure_stays.
apply/setP => i; case: (unliftP ord0 i) => [k ->|->]; last first.
  by rewrite (negPf first); apply/esym/imsetP => -[k _ /eqP]; rewrite (negPf (neq_lift _ _)).
rewrite in_sure inE sure_prompted (given k).2; apply/forallP/eqP => [most|eq1 i'].
  by apply/eqP; rewrite eq_le (given k).1 -score_later -score0 most.
rewrite score_later eq1; case: (unliftP ord0 i') => [k' ->|->]; first by rewrite score_later (given k').1.
by rewrite (le_trans (ltW score_first)) ?ler01.
Qed.

(** Lemma D.13: at each position that is sure given prompt and text, and whose rest is possible, the value is the
    weighted sum of the conditional probabilities of what stands there and the memory. At every sure position the
    value is a positive multiple of the target. This covers the positions whose rest is impossible, because all of
    these count as sure. Where prompt and text exclude each other, the value is 0 at every position behind the prompt.
    The paper says so of the positions that are sure by the text alone, but by Claim D.12 these are among ours. The
    head is that of Lemma D.9, and its key and offset may be any. *)
Lemma lemma_D_13 : assumption_D_5 M mu j D -> exists recover : V * state -> X -> R,
  forall (key : X -> R) (offset : nat -> R) n (x : text X n) (i : 'I_n), 0 < mPr M (prior M) x ->
  let e := mprompted M u x in let i' := lift ord0 i in
  let value_at := value (head j D key recover mu offset) (mGbar M e i') (lift_down (tnth e i')) in
  [/\ sure_behind M u x i' j D -> 0 < rest_Pr M u x i' ->
        value_at = \sum_v mu v * (with_cell M u x j v / rest_Pr M u x i'),
      sure_behind M u x i' j D -> exists2 r : R, 0 < r &
        value_at = r * \sum_v mu v * cell_posterior M (prior M) x j v &
      with_Pr M u x = 0 -> value_at = 0].
Proof.
move=> assumed; have [recover recoverP] := recover_exists assumed.
have omega_ge0 := left_over_ge0 M j mu; have all_P := left_over_weighed (M := M) (j := j) (mu := mu).
exists recover => key offset n x i possible e i' value_at.
have excluded : with_Pr M u x = 0 -> value_at = 0.
  rewrite with_Pr_prompted /value_at value_prompted => zero.
  by rewrite (value_impossible omega_ge0 key mu all_P recoverP).
have sure_value : sure_behind M u x i' j D -> value_at = target M omega j mu x / rest_Pr M u x i'.
  rewrite sure_prompted rest_Pr_prompted /value_at value_prompted => is_sure.
  by rewrite (value_sure omega_ge0 key mu all_P recoverP).
split=> // [is_sure _|is_sure].
  rewrite sure_value // /target big_distrl; apply: eq_bigr => v _ /=.
  by rewrite with_cell_prompted mulrA.
have [zero|nonzero] := eqVneq (with_Pr M u x) 0.
  by exists 1; rewrite ?ltr01 // excluded // (claim_D_15 x).1 ?mulr0.
have rest_gt0 := rest_possible i nonzero.
exists (mPr M (prior M) x / rest_Pr M u x i'); first by rewrite divr_gt0.
by rewrite sure_value // target_posterior; field; rewrite !lt0r_neq0.
Qed.

End Prompted.

End Lemmas.
