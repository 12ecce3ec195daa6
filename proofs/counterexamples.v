(** * Counterexamples: what the theorems need, and Proposition D.1 as printed *)

From mathcomp Require Import all_ssreflect all_algebra ring.
From hmm Require Import ordered_fields definitions messages left_inverse section_3 appendix_c attention section_4 appendix_d.

Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.

Import GRing.Theory Num.Theory Order.Theory.
Local Open Scope ring_scope.

(** The entry of a table of fractions with the common denominator d. *)
Definition table (R : realFieldType) (rows : seq (seq nat)) (d i j : nat) : R :=
  (nth 0%N (nth [::] rows i) j)%:R / d%:R.

Lemma table_ge0 R rows d i j : 0 <= table R rows d i j.
Proof. by rewrite divr_ge0 ?ler0n. Qed.

(** A sum over few indices, written out. *)
Ltac expand := rewrite ?(big_ord_recl, big_ord0) /table /= /bump /=.
Ltac calculate := by expand; field; rewrite ?pnatr_eq0.

Section Twins.

Variable R : realFieldType.

(** Three states 0, 1 and 2, and two tokens 0 and 1. States 0 and 1 emit token 0, and state 2 emits token 1. Every state
    can follow every state, so that the chain is ergodic. What follows states 0 and 1 differs: state 2 follows state 0
    with probability 3/4, state 1 with probability 1/4, and itself with probability 1/2. *)
Definition twins_initial (h : 'I_3) : R := table R [:: [:: 1; 1; 2]]%N 4 0 h.

Definition twins_transition (h' h : 'I_3) : R :=
  table R [:: [:: 1; 3; 2]; (* to state 0, from states 0, 1 and 2 *)
              [:: 1; 3; 2]; (* to state 1 *)
              [:: 6; 2; 4]]%N (* to state 2 *) 8 h' h.

Definition twins_emission (x : 'I_2) (h : 'I_3) : R :=
  table R [:: [:: 1; 1; 0]; (* token 0, from states 0, 1 and 2 *)
              [:: 0; 0; 1]]%N (* token 1 *) 1 x h.

Fact twins_initial_sum : \sum_h twins_initial h = 1.
Proof. rewrite /twins_initial; calculate. Qed.

Fact twins_transition_sum h : \sum_h' twins_transition h' h = 1.
Proof. rewrite /twins_transition; case: h => [[|[|[|//]]] ?]; calculate. Qed.

Fact twins_emission_sum h : \sum_x twins_emission x h = 1.
Proof. rewrite /twins_emission; case: h => [[|[|[|//]]] ?]; calculate. Qed.

Definition twins : hmm R [finite 'I_3] [finite 'I_2] :=
  @Hmm R [finite 'I_3] [finite 'I_2] twins_initial twins_transition twins_emission
    (fun=> table_ge0 _ _ _ _ _) (fun _ _ => table_ge0 _ _ _ _ _) (fun _ _ => table_ge0 _ _ _ _ _)
    twins_initial_sum twins_transition_sum twins_emission_sum.

(** The task weighs state 0 by 1 and state 2 by -1/2. *)
Definition twins_mu (h : 'I_3) : R := [:: 1; 0; - 2%:R^-1]`_h.

(** The text of one token. *)
Definition only (w : 'I_2) : text [finite 'I_2] 1 := [tuple Some w].

Fact twins_moves h' h : 0 < twins_transition h' h.
Proof.
rewrite /twins_transition /table divr_gt0 ?ltr0n //.
by case: h' => [[|[|[|//]]] ?]; case: h => [[|[|[|//]]] ?].
Qed.

Fact twins_regular : assumption_3_2 twins.
Proof.
split=> [|h]; last by rewrite divr_gt0 ?ltr0n //; case: h => [[|[|[|//]]] ?].
exists 1%N => h h' /=; rewrite (bigD1 h) //= eqxx mulr1 big1 ?addr0 => [|h1 /negPf ->]; last by rewrite mulr0.
exact: twins_moves.
Qed.

(** The probability of the token after each state. *)
Definition twins_next (w : 'I_2) (h : 'I_3) : R :=
  table R [:: [:: 1; 3; 2]; (* token 0, after states 0, 1 and 2 *)
              [:: 3; 1; 2]]%N (* token 1 *) 4 w h.

Fact twins_back (w : 'I_2) (h : 'I_3) :
  back twins (evidence twins (only w)) h = twins_next w h.
Proof.
rewrite /= /twins_transition /twins_emission /twins_next.
case: w => [[|[|//]] ?]; case: h => [[|[|[|//]]] ?]; calculate.
Qed.

Fact twins_marginal (h : 'I_3) : marginal twins 1 h = twins_initial h.
Proof.
rewrite /= /twins_initial /twins_transition.
case: h => [[|[|[|//]]] ?]; calculate.
Qed.

Fact twins_possible w : Pr twins (only w) = 2%:R^-1.
Proof.
rewrite (Pr_joint _ _ ord0) (eq_bigr (fun h => twins_initial h * twins_next w h)).
  rewrite /= /twins_initial /twins_next; case: w => [[|[|//]] ?]; calculate.
by move=> h _; rewrite joint_first twins_back.
Qed.

(** The label is yes after token 1, and no after token 0. *)
Fact twins_label (w : 'I_2) : label twins twins_mu (only w) = (w == 1%N :> nat).
Proof.
rewrite label_joint ?twins_possible ?invr_gt0 ?ltr0n //.
have -> : \sum_h twins_mu h * joint twins (only w) ord0 h = (-1) ^+ w.+1 / 16%:R.
  rewrite (eq_bigr (fun h => twins_mu h * (twins_initial h * twins_next w h))).
    rewrite /= /twins_initial /twins_mu /twins_next; case: w => [[|[|//]] ?]; calculate.
  by move=> h _; rewrite joint_first twins_back.
case: w => [[|[|//]] ?] /=; rewrite ?expr1 ?sqrrN ?expr1n.
  by rewrite mulN1r oppr_ge0 invr_le0 lern0.
by rewrite mul1r invr_ge0 ler0n.
Qed.

(** A mask in front of either token has the same prediction. *)
Fact twins_G w : G twins [tuple of mask _ :: only w] ord0 =1 fun=> 2%:R^-1.
Proof.
move=> w'; rewrite G_in_front Pr_in_front.
rewrite [X in X / _](eq_bigr (fun h => twins_emission w' h * twins_initial h * twins_next w h)); last first.
  by move=> h _; rewrite twins_marginal twins_back.
rewrite [X in _ / X](eq_bigr (fun h => twins_initial h * twins_next w h)); last first.
  by move=> h _; rewrite twins_marginal twins_back mul1r.
rewrite /= /twins_initial /twins_emission /twins_next.
case: w => [[|[|//]] ?]; case: w' => [[|[|//]] ?]; calculate.
Qed.

(** The essential states 0 and 2 emit different tokens. *)
Definition twins_essential : {pred 'I_3} := [pred h : 'I_3 | h != 1%N :> nat].

Fact twins_independent : independent_columns twins twins_essential.
Proof.
move=> c outside zero.
have c1 : c (lift ord0 ord0) = 0 by apply: outside.
have := zero (lift ord0 ord0); have := zero ord0.
rewrite /= /twins_emission; expand; rewrite !divr1 !(mul0r, mul1r, addr0, add0r) c1 addr0 => c0 c2.
by case=> [[|[|[|//]]] ?]; [rewrite -c0|rewrite -c1|rewrite -c2]; congr c; apply: val_inj.
Qed.

Fact twins_weighs h : twins_mu h != 0 -> h \in twins_essential.
Proof. by rewrite inE /twins_mu; case: h => [[|[|[|//]]] ?] //=; rewrite eqxx. Qed.

(** The states 0 and 1 are equally likely to come next, whatever came before. *)
Fact twins_conditioned u : conditioned twins u (lift ord0 ord0) = conditioned twins u ord0.
Proof. by apply: eq_bigr => h _; congr (_ * _); rewrite /= /twins_transition; case: h => [[|[|[|//]]] ?]. Qed.

(** Behind any prompt and a gap, either token has the same prediction. *)
Fact twins_Gbar u w w' :
  let p := conditioned twins u ord0 in
  let q := conditioned twins u (lift ord0 (lift ord0 ord0)) / 2%:R in
  Gbar twins (prompted twins u (only w)) (gap 1) w' =
  if p + q == 0 then 0 else (if w' == 0%N :> nat then p else q) / (p + q).
Proof.
move=> p q.
have tauE (h : 'I_3) : tau twins (prompted twins u (only w)) (gap 1) h =
    conditioned twins u h * twins_next w h.
  by rewrite tau_gap twins_back.
rewrite /Gbar (eq_bigr _ (fun h _ => tauE h)).
have -> : \sum_h conditioned twins u h * twins_next w h = p + q.
  rewrite !big_ord_recl big_ord0 twins_conditioned -/p /q.
  by rewrite /twins_next; case: w {tauE} => [[|[|//]] ?]; calculate.
case: eqP => [//|/eqP nonzero].
under eq_bigr => h _ do rewrite tauE.
rewrite !big_ord_recl big_ord0 twins_conditioned -/p /= /twins_emission /twins_next.
have -> : conditioned twins u (lift ord0 (lift ord0 ord0)) = 2%:R * q by rewrite /q; field; rewrite ?pnatr_eq0.
by case: w {tauE} => [[|[|//]] ?]; case: w' => [[|[|//]] ?]; expand; field; rewrite nonzero ?pnatr_eq0.
Qed.

End Twins.

(** Theorem 3.3 fails without Assumption 3.1. There are a regular hidden Markov model, a task and two texts of
    one token that can occur, such that every linear head on the prediction at a mask in front gives one of the two
    texts a wrong label. *)
Theorem theorem_3_3_needs_independent_columns (R : realFieldType) :
  exists (H X : finType) (M : hmm R H X) (mu : H -> R) (x y : X),
  let text_x := [tuple Some x] in let text_y := [tuple Some y] in
  [/\ assumption_3_2 M, 0 < Pr M text_x, 0 < Pr M text_y &
   forall b : X -> R, ~ (label M mu text_x = (0 <= \sum_w b w * G M [tuple of mask X :: text_x] ord0 w) /\
                         label M mu text_y = (0 <= \sum_w b w * G M [tuple of mask X :: text_y] ord0 w))].
Proof.
exists [finite 'I_3], [finite 'I_2], (twins R), (@twins_mu R), ord0, (lift ord0 ord0).
rewrite /= -!/(only _); split; rewrite ?twins_possible ?invr_gt0 ?ltr0n //; first exact: twins_regular.
move=> b; rewrite !twins_label => -[no yes]; move: yes; set s := \sum_w _.
suff -> : s = \sum_w b w * G (twins R) [tuple of mask _ :: only ord0] ord0 w by rewrite -no.
by apply: eq_bigr => w _; rewrite !twins_G.
Qed.

(** Theorem 3.6 fails without part 3 of Assumption 3.5. There are a regular hidden Markov model, a task, a set D of
    essential states with parts 1 and 2 of that assumption, and two texts of one token that can occur. Whatever the
    prompt and the linear head are, one of the two texts gets a wrong label. *)
Theorem theorem_3_6_needs_part_3 (R : realFieldType) :
  exists (H X : finType) (M : hmm R H X) (mu : H -> R) (D : {pred H}) (x y : X),
  let text_x := [tuple Some x] in let text_y := [tuple Some y] in
  [/\ assumption_3_2 M,
      independent_columns M D /\ (forall h, mu h != 0 -> h \in D),
      0 < Pr M text_x, 0 < Pr M text_y &
   forall (u : embedding R H) (b : X -> R),
   ~ (label M mu text_x = (0 <= \sum_w b w * Gbar M (prompted M u text_x) (gap 1) w) /\
      label M mu text_y = (0 <= \sum_w b w * Gbar M (prompted M u text_y) (gap 1) w))].
Proof.
exists [finite 'I_3], [finite 'I_2], (twins R), (@twins_mu R), twins_essential.
exists ord0, (lift ord0 ord0); rewrite /= -!/(only _).
split; rewrite ?twins_possible ?invr_gt0 ?ltr0n //; first exact: twins_regular.
  by split; [exact: twins_independent | exact: twins_weighs].
move=> u b; rewrite !twins_label => -[no yes]; move: yes; set s := \sum_w _.
suff -> : s = \sum_w b w * Gbar (twins R) (prompted (twins R) u (only ord0)) (gap 1) w by rewrite -no.
by apply: eq_bigr => w _; rewrite !twins_Gbar.
Qed.

Section Coin.

Variable R : realFieldType.

(** A coin that is tossed anew for each token: one memory cell with one value, one state, and two tokens that are
    equally likely. *)
Notation one_state := (state 1 [finite unit]).
Notation one_memory := (memory 1 [finite unit]).
Notation tokens := [finite bool].

Fact half_ge0 : 0 <= 2%:R^-1 :> R.
Proof. by rewrite invr_ge0 ler0n. Qed.

Fact coin_prior_sum : \sum_(m : one_memory) (1 : R) = 1.
Proof. by rewrite sumr_const card_ffun card_unit exp1n. Qed.

Fact coin_state_sum : \sum_(h : one_state) (1 : R) = 1.
Proof. by rewrite sumr_const card_prod card_ord card_unit. Qed.

Fact coin_words_sum : \sum_(x : tokens) (2%:R^-1 : R) = 1.
Proof. by rewrite sumr_const card_bool -[LHS]mulr_natl mulfV ?pnatr_eq0. Qed.

Definition coin : memory_hmm R 1 [finite unit] [finite unit] tokens :=
  @MemoryHmm R 1 [finite unit] [finite unit] tokens
    (fun=> 1) (fun=> 1) (fun _ _ => 1) (fun _ _ _ => 2%:R^-1)
    (fun=> ler01) (fun=> ler01) (fun _ _ => ler01) (fun _ _ _ => half_ge0)
    coin_prior_sum coin_state_sum (fun=> coin_state_sum) (fun _ _ => coin_words_sum).

(** What the entries of a text are worth. *)
Definition chance (token : option bool) : R := if token is Some _ then 2%:R^-1 else 1.

Fact coin_back m (y : seq (option bool)) h :
  back (given coin m) (map (embed (given coin m)) y) h = \prod_(token <- y) chance token.
Proof.
elim: y h => [|token y IH] h /=; first by rewrite big_nil.
rewrite big_cons (eq_bigr (fun=> 1 * (chance token * \prod_(token <- y) chance token))) => [|h' _].
  by rewrite -big_distrl /= coin_state_sum mul1r.
by rewrite IH mulrA; congr (_ * _ * _); case: token.
Qed.

Fact coin_Pr n (x : text tokens n) : mPr coin (prior coin) x = \prod_(token <- x) chance token.
Proof.
set r := \prod_(token <- x) _; rewrite -[RHS]mul1r -coin_prior_sum big_distrl; apply: eq_bigr => m _.
congr (_ * _); rewrite (Pr_joint _ _ ord0) -[RHS]mul1r -coin_state_sum big_distrl; apply: eq_bigr => h _.
by rewrite joint_first; congr (_ * _); exact: coin_back.
Qed.

Fact coin_put (x : text tokens 2) token :
  mPr coin (prior coin) (put x ord0 token) = chance token * chance (tnth x (lift ord0 ord0)).
Proof. by rewrite coin_Pr big_tuple !big_ord_recl big_ord0 !tnth_mktuple mulr1. Qed.

End Coin.

(** Proposition D.1 is false as printed, with the joint probability P[M_J, J, S, X_{-i} = x_{-i}] on the right. There
    are a memory model, a text without masks and a position, for which what stands elsewhere can occur, but for which
    the two sides of the printed equation differ at every token. *)
Theorem proposition_D_1_as_printed_is_false (R : realFieldType) :
  exists (N : nat) (V S X : finType) (M : memory_hmm R N V S X) (n : nat) (x : text X n) (i : 'I_n),
  [/\ forall k, tnth x k != mask X, 0 < mPr M (prior M) (put x i (mask X)) &
   forall w : X, mG M (prior M) x i w <> \sum_h \sum_v words M w v h * word_joint M (prior M) x i v h].
Proof.
pose x : text [finite bool] 2 := [tuple Some true; Some true].
exists 1%N, [finite unit], [finite unit], [finite bool], (coin R), 2%N, x, ord0.
split=> [k||w]; [by case: k => [[|[|//]] ?] | by rewrite coin_put mul1r invr_gt0 ltr0n |].
rewrite -(proposition_D_1 (coin R) (prior (coin R)) x ord0 (Some w)) /mG !coin_put /= mul1r => /eqP.
by rewrite mulfK ?invr_eq0 ?pnatr_eq0 // -[X in X == _]mulr1 (inj_eq (mulfI _)) ?invr_eq0 ?pnatr_eq0 //
  eq_sym invr_eq1 pnatr_eq1.
Qed.
