(** * Lemma D.9 is false as printed *)

From mathcomp Require Import all_ssreflect all_algebra ring.
From hmm Require Import ordered_fields definitions messages left_inverse section_3 appendix_c attention lifting appendix_d_lemmas
  counterexamples.

Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.

Import GRing.Theory Num.Theory Order.Theory.
Local Open Scope ring_scope.

Section Ergodic.

Variables (R : realFieldType) (H X : finType) (M : hmm R H X).

Lemma after_ge0 n h h' : 0 <= after M n h h'.
Proof.
by elim: n h' => [|n IH] h' /=; rewrite ?ler0n // sumr_ge0 // => h1 _; rewrite mulr_ge0 ?transition_ge0.
Qed.

(** One more step on a possible way. *)
Lemma after_step n h h1 h' : 0 < transition M h' h1 -> 0 < after M n h h1 -> 0 < after M n.+1 h h'.
Proof.
move=> moves reached; rewrite /= (bigD1 h1) //= lt_sum ?mulr_gt0 // sumr_ge0 // => h2 _.
by rewrite mulr_ge0 ?transition_ge0 ?after_ge0.
Qed.

(** One possible path makes a probability positive. *)
Lemma Pr_e_gt0 n (e : n.-tuple (embedding R H)) h0 (p : n.-tuple H) :
  (forall i h, 0 <= tnth e i h) -> 0 < path_probability M h0 p * explained e p -> 0 < Pr_e M e.
Proof.
move=> e_ge0 possible.
have ge0 h1 (q : n.-tuple H) : 0 <= path_probability M h1 q * explained e q.
  rewrite mulr_ge0 ?mulr_ge0 ?initial_ge0 ?prodr_ge0 // => i _; exact: transition_ge0.
rewrite /Pr_e (bigD1 h0) //= lt_sum ?sumr_ge0 // => [|h1 _]; last by rewrite sumr_ge0.
by rewrite (bigD1 p) //= lt_sum // sumr_ge0.
Qed.

(** Texts whose tokens are explained alike have the same probability. *)
Lemma Pr_alike n (x y : text X n) :
  (forall i h, embed M (tnth x i) h = embed M (tnth y i) h) -> Pr M x = Pr M y.
Proof.
move=> alike; apply: eq_bigr => h0 _; apply: eq_bigr => p _; congr (_ * _).
by apply: eq_bigr => i _; rewrite !tnth_map.
Qed.

End Ergodic.

(** The positions after the prompt that are sure by the text alone, as in (D.8). Position 0 is the prompt. *)
Definition sure_by_text (R : realFieldType) N (V S X : finType) (M : memory_hmm R N V S X) (j : 'I_N) (D : {pred S})
    n (x : text X n) : {set 'I_n.+1} :=
  [set lift ord0 i | i in [pred i : 'I_n | sure M (prior M) j D x i]].

(** The rest of prompt and text can occur, if position i is left out. *)
Definition possible_without (R : realFieldType) N (V S X : finType) (M : memory_hmm R N V S X)
    (u : lifted_state N V S -> R) n (x : text X n) (i : 'I_n.+1) : Prop :=
  0 < rest_Pr M u x i.

Section Shrinking.

Variable R : realFieldType.

(** One memory cell with the values false and true, states 0, 1 and 2, and tokens 0, 1, 2 and 3. *)
Notation three := (state 1 [finite 'I_3]).
Notation values := (memory 1 [finite bool]).
Notation tokens := [finite 'I_4].

Definition shrinking_prior (m : values) : R := 2%:R^-1.
Definition shrinking_start (h : three) : R := table R [:: [:: 1; 1; 2]]%N 4 0 h.2.

(** State 1 follows state 0, state 2 follows state 1, and states 0 and 2 follow state 2. *)
Definition shrinking_move (h' h : three) : R :=
  table R [:: [:: 0; 0; 1]; (* to state 0, from states 0, 1 and 2 *)
              [:: 2; 0; 0]; (* to state 1 *)
              [:: 0; 2; 1]]%N (* to state 2 *) 2 h'.2 h.2.

Definition shrinking_words (x : 'I_4) (v : bool) (h : three) : R :=
  table R (if v then [:: [:: 0; 0; 0]; (* token 0, from states 0, 1 and 2, if the value is true *)
                         [:: 2; 0; 2]; (* token 1 *)
                         [:: 0; 2; 0]; (* token 2 *)
                         [:: 0; 0; 0]] (* token 3 *)
                else [:: [:: 1; 0; 0]; (* token 0, from states 0, 1 and 2, if the value is false *)
                         [:: 1; 0; 0]; (* token 1 *)
                         [:: 0; 2; 0]; (* token 2 *)
                         [:: 0; 0; 2]])%N (* token 3 *) 2 x h.2.

Lemma sum_three (F : three -> R) : \sum_h F h = \sum_(k < 3) F (ord0, k).
Proof.
rewrite (eq_bigr (fun h => F (h.1, h.2))) => [|[i k] _ //].
by rewrite -(pair_big predT predT (fun i k => F (i, k))) big_ord1.
Qed.

Fact shrinking_prior_sum : \sum_m shrinking_prior m = 1.
Proof.
by rewrite sumr_const card_ffun card_bool card_ord expn1 -[LHS]mulr_natl mulfV ?pnatr_eq0.
Qed.

Fact shrinking_start_sum : \sum_h shrinking_start h = 1.
Proof. rewrite sum_three /shrinking_start; calculate. Qed.

Fact shrinking_move_sum h : \sum_h' shrinking_move h' h = 1.
Proof. rewrite sum_three /shrinking_move; case: h => [? [[|[|[|//]]] ?]]; calculate. Qed.

Fact shrinking_words_sum v h : \sum_x shrinking_words x v h = 1.
Proof. rewrite /shrinking_words; case: v; case: h => [? [[|[|[|//]]] ?]]; calculate. Qed.

Definition shrinking : memory_hmm R 1 [finite bool] [finite 'I_3] tokens :=
  @MemoryHmm R 1 [finite bool] [finite 'I_3] tokens
    shrinking_prior shrinking_start shrinking_move shrinking_words
    (fun=> half_ge0 R) (fun=> table_ge0 _ _ _ _ _) (fun _ _ => table_ge0 _ _ _ _ _)
    (fun _ _ _ => table_ge0 _ _ _ _ _)
    shrinking_prior_sum shrinking_start_sum shrinking_move_sum shrinking_words_sum.

(** The task weighs the value false only, and states 0 and 1 are recoverable. *)
Definition shrinking_mu (v : bool) : R := (~~ v)%:R.
Definition shrinking_D : {pred 'I_3} := [pred k : 'I_3 | k != 2%N :> nat].

Notation j := (ord0 : 'I_1).
Notation p := ((ord0, ord0) : three).
Notation q := ((ord0, lift ord0 ord0) : three).
Notation r := ((ord0, lift ord0 (lift ord0 ord0)) : three).

Lemma three_cases (P : three -> Prop) : P p -> P q -> P r -> forall h, P h.
Proof.
move=> Pp Pq Pr [i k]; rewrite (ord1 i).
by case: k => [[|[|[|//]]] ?]; [move: Pp | move: Pq | move: Pr]; congr P; congr pair; apply: val_inj.
Qed.

Fact shrinking_regular m : assumption_3_2 (given shrinking m).
Proof.
split=> [|h]; last by rewrite divr_gt0 ?ltr0n //; case: h => [? [[|[|[|//]]] ?]].
have moves (h' h : three) : (0 < nth 0 (nth [::] [:: [:: 0; 0; 1]; [:: 2; 0; 0]; [:: 0; 2; 1]] h'.2) h.2)%N ->
    0 < transition (given shrinking m) h' h by move=> pos; rewrite divr_gt0 ?ltr0n.
have stay h : 0 < after (given shrinking m) 0 h h by rewrite /= eqxx ltr01.
have to_r h : 0 < after (given shrinking m) 2 h r.
  elim/three_cases: h; [apply: (@after_step _ _ _ _ _ _ q) | apply: (@after_step _ _ _ _ _ _ r)
    | apply: (@after_step _ _ _ _ _ _ r)]; try exact: moves; apply: after_step (stay _); exact: moves.
exists 4%N => h; elim/three_cases.
- by apply: (@after_step _ _ _ _ _ _ r); [|apply: after_step (to_r h)]; exact: moves.
- by apply: (@after_step _ _ _ _ _ _ p); [|apply: after_step (to_r h)]; exact: moves.
- by apply: (@after_step _ _ _ _ _ _ r); [|apply: after_step (to_r h)]; exact: moves.
Qed.

Fact shrinking_stationary : stationary shrinking.
Proof.
by elim/three_cases; rewrite sum_three /= /shrinking_move /shrinking_start; calculate.
Qed.

(** Assumption D.5 holds: under the value false, states 0, 1 and 2 emit different tokens. *)
Fact mixture_false c x : (forall h, c true h = 0) ->
  mixture shrinking c x = \sum_(k < 3) shrinking_words x false (ord0, k) * c false (ord0, k).
Proof.
move=> c_true; rewrite /mixture sum_three; apply: eq_bigr => k _.
by rewrite big_bool /= c_true mulr0 add0r.
Qed.

Fact shrinking_assumption_D_5 : assumption_D_5 shrinking shrinking_mu j shrinking_D.
Proof.
have mu_true : shrinking_mu true == 0 by [].
have mu_false : shrinking_mu false != 0 by rewrite oner_eq0.
have at_j (h : three) : (h.1 == j) = true by apply/eqP; exact: ord1.
pose supported (c : bool -> three -> R) := forall v h,
  ~~ (recoverable j shrinking_D h && ((h.1 == j) ==> (shrinking_mu v != 0))) -> c v h = 0.
have only_false c : supported c ->
    [/\ forall h, c true h = 0, c false r = 0, mixture shrinking c ord0 = c false p / 2%:R
      & mixture shrinking c (lift ord0 (lift ord0 ord0)) = c false q].
  move=> outside.
  have c_true h : c true h = 0 by apply: outside; rewrite at_j mu_true /= andbF.
  have c_r : c false r = 0 by apply: outside.
  split=> //; rewrite mixture_false //= !big_ord_recl big_ord0 c_r /shrinking_words /=; calculate.
have zero c : supported c ->
    mixture shrinking c ord0 = 0 -> mixture shrinking c (lift ord0 (lift ord0 ord0)) = 0 -> forall v h, c v h = 0.
  move=> /only_false [c_true c_r -> ->] /eqP; rewrite mulf_eq0 invr_eq0 pnatr_eq0 orbF => /eqP c_p c_q.
  by case=> // ; elim/three_cases.
split=> [c outside mix|c c' outside outside' mix x]; first exact: zero.
have c'_true h : c' true h = 0 by apply: outside'; rewrite at_j mu_true /= orbT.
have c'_p : c' false p = 0 by apply: outside'.
have c'_q : c' false q = 0 by apply: outside'.
have all0 : forall v h, c v h = 0.
  by apply: zero => //; rewrite mix mixture_false // !big_ord_recl big_ord0 c'_p c'_q /shrinking_words; calculate.
by rewrite /mixture big1 // => h _; rewrite big1 // => v _; rewrite all0 mulr0.
Qed.

(** The texts (0, 2) and (1, 2). *)
Notation first := (ord0 : 'I_2).
Notation second := (lift ord0 ord0 : 'I_2).
Definition zero_two : text tokens 2 := [tuple Some ord0; Some (lift ord0 (lift ord0 ord0))].
Definition one_two : text tokens 2 := [tuple Some (lift ord0 ord0); Some (lift ord0 (lift ord0 ord0))].

(** Under the value false, tokens 0 and 1 are explained alike. So behind the prompt the two texts have the same
    predictions. *)
Fact shrinking_put_alike i token :
  mPr shrinking (left_over shrinking j shrinking_mu) (put zero_two i token) =
  mPr shrinking (left_over shrinking j shrinking_mu) (put one_two i token).
Proof.
apply: eq_bigr => m _; rewrite /left_over /kept.
case m_true: (m j); first by rewrite eqxx !mul0r.
congr (_ * _); apply: Pr_alike => k h; rewrite !tnth_mktuple; case: ifP => // _.
by elim/three_cases: h; case: k => [[|[|//]] ?] //=; rewrite /shrinking_words m_true.
Qed.

Fact shrinking_same_prediction (i : 'I_2) w :
  mGbar shrinking (mprompted shrinking (prompt j shrinking_mu) zero_two) (lift ord0 i) w =
  mGbar shrinking (mprompted shrinking (prompt j shrinking_mu) one_two) (lift ord0 i) w.
Proof. by rewrite !(mGbar_prompted j shrinking_mu shrinking_stationary) /mG !shrinking_put_alike. Qed.

Local Arguments marginal : simpl never.

(** The joint probability of the state at a position and of the token at the other one. *)
Fact joint_at_first m (x : text tokens 2) h :
  joint (given shrinking m) (put x first (mask tokens)) (lift ord0 first) h =
  shrinking_start h * \sum_h' shrinking_move h' h * embed (given shrinking m) (tnth x second) h'.
Proof.
have -> : joint (given shrinking m) (put x first (mask tokens)) (lift ord0 first) h =
    tau (given shrinking m) (evidence (given shrinking m) x) first h.
  by rewrite tau_joint /joint -/(evidence _ _) evidence_put.
rewrite tau_formula take0 [from_left _ _ _ _]/= (marginal_stationary shrinking_stationary m 1).
case/tupleP: x => t1 x; case/tupleP: x => t2 x; rewrite (tuple0 x) tnthS tnth0 /=.
by congr (_ * _); apply: eq_bigr => h' _; rewrite mulr1.
Qed.

Fact joint_at_second m (x : text tokens 2) h :
  joint (given shrinking m) (put x second (mask tokens)) (lift ord0 second) h =
  \sum_h' shrinking_move h h' * (shrinking_start h' * embed (given shrinking m) (tnth x first) h').
Proof.
have -> : joint (given shrinking m) (put x second (mask tokens)) (lift ord0 second) h =
    tau (given shrinking m) (evidence (given shrinking m) x) second h.
  by rewrite tau_joint /joint -/(evidence _ _) evidence_put.
rewrite tau_formula; case/tupleP: x => t1 x; case/tupleP: x => t2 x; rewrite (tuple0 x) tnth0 mulr1.
by apply: eq_bigr => h' _; rewrite (marginal_stationary shrinking_stationary m 1).
Qed.

(** A position is sure if no memory leaves state 2 possible there. *)
Fact sure_if n (x : text tokens n) i :
  (forall m, joint (given shrinking m) (put x i (mask tokens)) (lift ord0 i) r = 0) ->
  sure shrinking (prior shrinking) j shrinking_D x i.
Proof.
move=> never; apply/forallP; elim/three_cases; [exact: implybT | exact: implybT | apply/implyP].
by rewrite big1 ?eqxx // => v _; rewrite /word_joint big1 // => m _; rewrite never mulr0.
Qed.

Fact first_sure (x : text tokens 2) : tnth x second = Some (lift ord0 (lift ord0 ord0)) ->
  sure shrinking (prior shrinking) j shrinking_D x first.
Proof.
move=> x2; apply: sure_if => m; rewrite joint_at_first x2 sum_three big1 ?mulr0 // => k _ /=.
by rewrite /shrinking_move /shrinking_words; case: (m _); case: k => [[|[|[|//]]] ?];
  rewrite /table /= ?(mul0r, mulr0).
Qed.

Fact second_sure : sure shrinking (prior shrinking) j shrinking_D zero_two second.
Proof.
apply: sure_if => m; rewrite joint_at_second sum_three big1 // => k _ /=.
by rewrite /shrinking_move /shrinking_words; case: (m _); case: k => [[|[|[|//]]] ?];
  rewrite /table /= ?(mul0r, mulr0).
Qed.

Fact second_not_sure : ~~ sure shrinking (prior shrinking) j shrinking_D one_two second.
Proof.
apply/negP => /forallP /(_ r); rewrite implybF negbK => /eqP.
pose term m := prior shrinking m * joint (given shrinking m) (put one_two second (mask tokens)) (lift ord0 second) r.
rewrite /word_joint -(by_value j term) => zero; pose m : values := [ffun=> true].
have ge0 m' : 0 <= term m'.
  by rewrite mulr_ge0 ?prior_ge0 ?joint_ge0.
have := psumr_eq0P (fun m' _ => ge0 m') zero => /(_ m isT) /eqP.
rewrite /term mulf_eq0 invr_eq0 pnatr_eq0 /= joint_at_second sum_three => /eqP.
have -> : \sum_(k < 3) shrinking_move r (ord0, k) * (shrinking_start (ord0, k) *
    embed (given shrinking m) (tnth one_two first) (ord0, k)) = 4%:R^-1.
  rewrite /= /shrinking_move /shrinking_start /shrinking_words ffunE; calculate.
by move=> /eqP; rewrite invr_eq0 pnatr_eq0.
Qed.

(** Both texts can occur with the prompt, so they can if a position is left out. *)
Fact shrinking_possible (x : text tokens 2) : x \in [:: zero_two; one_two] ->
  forall i, possible_without shrinking (prompt j shrinking_mu) x i.
Proof.
move=> in_x i; pose m : values := [ffun=> false].
apply: (@Pr_e_gt0 _ _ _ _ _ _ (m, r) [tuple (m, r); (m, p); (m, q)]).
  move=> k l; rewrite tnth_mktuple; case: ifP => _; first exact: ler01.
  case: (unliftP ord0 k) => [k' ->|->]; last by rewrite tnth0 ler0n.
  by rewrite tnthS tnth_map /lift_up /membed; case: (tnth x k') => [w|]; [exact: words_ge0 | exact: ler01].
rewrite mulr_gt0 ?mulr_gt0 ?invr_gt0 ?ltr0n ?divr_gt0 ?ltr0n //.
  apply: prodr_gt0 => k _; rewrite /= /lifted_transition.
  by case: k => [[|[|[|//]]] ?]; rewrite /= eqxx mulr1 /shrinking_move /table divr_gt0 ?ltr0n.
apply: prodr_gt0 => k _; rewrite tnth_mktuple; case: ifP => _; first exact: ltr01.
move: in_x; rewrite !inE => /orP [] /eqP ->; case: k => [[|[|[|//]]] ?];
  rewrite /tnth /= /prompt /kept /lift_up /= ?ffunE /= ?oner_eq0 ?ltr01 //;
  by rewrite /shrinking_words /table divr_gt0 ?ltr0n.
Qed.

(** Prompt and text can occur together, and the texts have no masks. *)
Fact shrinking_with (x : text tokens 2) : x \in [:: zero_two; one_two] ->
  0 < with_Pr shrinking (prompt j shrinking_mu) x.
Proof.
move=> in_x; pose m : values := [ffun=> false].
apply: (@Pr_e_gt0 _ _ _ _ _ _ (m, r) [tuple (m, r); (m, p); (m, q)]).
  move=> k l.
  case: (unliftP ord0 k) => [k' ->|->]; last by rewrite tnth0 ler0n.
  by rewrite tnthS tnth_map /lift_up /membed; case: (tnth x k') => [w|]; [exact: words_ge0 | exact: ler01].
rewrite mulr_gt0 ?mulr_gt0 ?invr_gt0 ?ltr0n ?divr_gt0 ?ltr0n //.
  apply: prodr_gt0 => k _; rewrite /= /lifted_transition.
  by case: k => [[|[|[|//]]] ?]; rewrite /= eqxx mulr1 /shrinking_move /table divr_gt0 ?ltr0n.
apply: prodr_gt0 => k _.
move: in_x; rewrite !inE => /orP [] /eqP ->; case: k => [[|[|[|//]]] ?];
  rewrite /tnth /= /prompt /kept /lift_up /= ?ffunE /= ?oner_eq0 ?ltr01 //;
  by rewrite /shrinking_words /table divr_gt0 ?ltr0n.
Qed.

Fact shrinking_tokens (x : text tokens 2) : x \in [:: zero_two; one_two] -> forall i, tnth x i != mask tokens.
Proof. by rewrite !inE => /orP [] /eqP -> i; case: i => [[|[|//]] ?]. Qed.

End Shrinking.

(** Lemma D.9 is false as printed. There are a regular and stationary model, a task and recoverable states that satisfy
    Assumption D.5, such that no query, key and position embeddings work. Whatever they are, for some text the head does
    not attend exactly to the positions that are sure by the text alone, although some position is sure. The lemma is
    about texts as in (D.7), which prompt and text leave possible if any of the first positions is left out. The text
    here is possible if any position at all is left out. Thus the lemma is also false if (D.7) means all positions, or
    only those after the prompt. *)
Theorem lemma_D_9_is_false (R : realFieldType) :
  exists (N : nat) (V S X : finType) (M : memory_hmm R N V S X) (j : 'I_N) (D : {pred S}) (mu : V -> R),
  [/\ forall m, assumption_3_2 (given M m), stationary M, assumption_D_5 M mu j D &
   forall (K : finType) (a : attention_head R N V S X K), exists (n : nat) (x : text X n),
   [/\ (forall i, tnth x i != mask X) /\ 0 < with_Pr M (prompt j mu) x,
       forall i, possible_without M (prompt j mu) x i,
       sure_by_text M j D x != set0 &
       attended a (mGbar M (mprompted M (prompt j mu) x)) <> sure_by_text M j D x]].
Proof.
exists 1%N, [finite bool], [finite 'I_3], [finite 'I_4].
exists (shrinking R), ord0, shrinking_D, (@shrinking_mu R).
split; [exact: shrinking_regular | exact: shrinking_stationary | exact: shrinking_assumption_D_5 |].
move=> K a; exists 2%N.
pose predicted (x : text [finite 'I_4] 2) :=
  mGbar (shrinking R) (mprompted (shrinking R) (prompt ord0 (@shrinking_mu R)) x).
have in_sure (x : text [finite 'I_4] 2) i :
    (lift ord0 i \in sure_by_text (shrinking R) ord0 shrinking_D x) =
    sure (shrinking R) (prior (shrinking R)) ord0 shrinking_D x i.
  by rewrite (mem_imset _ _ (@lift_inj _ ord0)) inE.
have first_in x : x \in [:: zero_two; one_two] ->
    lift ord0 ord0 \in sure_by_text (shrinking R) ord0 shrinking_D x.
  by rewrite in_sure !inE => /orP [] /eqP ->; apply: first_sure.
have nonempty x : x \in [:: zero_two; one_two] -> sure_by_text (shrinking R) ord0 shrinking_D x != set0.
  by move=> /first_in in_x; apply/set0Pn; exists (lift ord0 ord0).
have same_score i : score a (predicted zero_two) (lift ord0 i) = score a (predicted one_two) (lift ord0 i).
  apply: eq_bigr => k _; congr (_ * (_ + _)); apply: eq_bigr => w _; congr (_ * _).
  exact: shrinking_same_prediction.
have [right_zero|wrong] := eqVneq (attended a (predicted zero_two))
    (sure_by_text (shrinking R) ord0 shrinking_D zero_two); last first.
  have in_x : zero_two \in [:: zero_two; one_two] by rewrite inE eqxx.
  exists zero_two; split; [| exact: shrinking_possible | exact: nonempty | exact/eqP].
  by split; [exact: shrinking_tokens | exact: shrinking_with].
have in_x : one_two \in [:: zero_two; one_two] by rewrite !inE eqxx orbT.
exists one_two; split; [| exact: shrinking_possible | exact: nonempty | move=> right_one].
  by split; [exact: shrinking_tokens | exact: shrinking_with].
have /negP := second_not_sure R; apply; rewrite -in_sure -right_one inE; apply/forallP => i.
have most : lift ord0 ord0 \in attended a (predicted one_two) by rewrite /predicted right_one first_in.
move: most; rewrite inE => /forallP /(_ i) le; apply: le_trans le _; rewrite -!same_score.
have : lift ord0 (lift ord0 ord0) \in attended a (predicted zero_two) by rewrite right_zero in_sure second_sure.
by rewrite inE => /forallP.
Qed.
