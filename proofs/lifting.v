(** * Appendix D.2: lifted states, and what a prompt makes of them *)

From mathcomp Require Import all_ssreflect all_algebra ring.
From hmm Require Import ordered_fields definitions messages left_inverse section_3 appendix_c attention.

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
Definition lifted_state : finType := [finite memory * state].

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

(** What the rest of prompt and text says about a position, if what stands there is left out. Position i is time
    i + 1, and the prompt is at position 0, which is position 1 in the paper. With a fake token in front, which state l
    emits with probability u l, as in Lemma D.7, these are probabilities of the hatted X. *)
Section Rest.

Variables (n : nat) (u : lifted_state -> R) (x : text X n) (i : 'I_n.+1).

(** P[hatted X_{-i} = hatted x_{-i}] *)
Definition rest_Pr : R := Pr_e lifted (replace (mprompted u x) i (@one R lifted_state)).

(** P[M = m, H_i = h, hatted X_{-i} = hatted x_{-i}], at (m, h) *)
Definition rest_joint (l : lifted_state) : R :=
  joint_e lifted (replace (mprompted u x) i (@one R lifted_state)) (lift ord0 i) l.

(** P[H_i = h, hatted X_{-i} = hatted x_{-i}] *)
Definition rest_state (h : state) : R := \sum_(m : memory) rest_joint (m, h).

(** P[M_k = v, H_i = h, hatted X_{-i} = hatted x_{-i}], where k is the cell of h *)
Definition rest_word (v : V) (h : state) : R := \sum_(m : memory | m h.1 == v) rest_joint (m, h).

(** P[M_j = v, hatted X_{-i} = hatted x_{-i}] *)
Definition rest_cell (j : 'I_N) (v : V) : R := \sum_(m : memory | m j == v) \sum_h rest_joint (m, h).

(** The state at position i is surely recoverable, given the rest of prompt and text. *)
Definition sure_behind (j : 'I_N) (D : {pred S}) : bool :=
  [forall h : state, (rest_state h != 0) ==> recoverable j D h].

End Rest.

(** P[hatted X = hatted x], where nothing is left out *)
Definition with_Pr n (u : lifted_state -> R) (x : text X n) : R := Pr_e lifted (mprompted u x).

(** P[M_j = v, hatted X = hatted x], summed over the state at time 0 *)
Definition with_cell n (u : lifted_state -> R) (x : text X n) (j : 'I_N) (v : V) : R :=
  \sum_(m : memory | m j == v) \sum_h joint_e lifted (mprompted u x) ord0 (m, h).

Lemma card_cell (k : 'I_N) (v : V) : #|[pred m : memory | m k == v]| = (#|V| ^ N.-1)%N.
Proof.
rewrite (@eq_card _ _ (family (fun k' => if k' == k then pred1 v else predT))); last first.
  move=> m; rewrite !inE; apply/eqP/familyP => [mk k'|/(_ k)]; last by rewrite eqxx => /eqP.
  by case: eqP => [->|_] //; rewrite inE mk.
rewrite card_family foldrE big_map big_enum /= (bigD1 k) //= eqxx card1 mul1n.
rewrite (eq_bigr (fun=> #|V|)) => [|k' /negPf ->]; last by apply: eq_card.
by rewrite prod_nat_const cardC1 card_ord.
Qed.

Lemma V_nonempty : (0 < #|V|)%N.
Proof.
case: (pickP (@predT lifted_state)) => [l _|none]; first by apply/card_gt0P; exists (l.1 l.2.1).
by have /eqP := initial_sums_to_1 lifted; rewrite big_pred0 // eq_sym oner_eq0.
Qed.

Lemma lift_down_up (v' : V -> state -> R) v h : lift_down (lift_up v') v h = v' v h.
Proof.
rewrite /lift_down /lift_up /=.
rewrite (eq_bigr (fun=> v' v h)) => [|m /eqP -> //].
rewrite sumr_const card_cell -[v' v h *+ _]mulr_natr mulrC mulfK //.
by rewrite pnatr_eq0 expn_eq0 negb_and -lt0n V_nonempty.
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

Variables (j : 'I_N) (mu : V -> R).

(** (D.6): the prompt rules out memories whose value in the task's cell has no weight. *)
Definition kept (m : memory) : R := (mu (m j) != 0)%:R.
Definition prompt : lifted_state -> R := fun l => kept l.1.

(** What it leaves of the prior. *)
Definition left_over (m : memory) : R := kept m * prior M m.

Lemma left_over_ge0 m : 0 <= left_over m.
Proof. by rewrite mulr_ge0 ?ler0n ?prior_ge0. Qed.

(** What it leaves are memories with a weight in the task's cell. *)
Lemma left_over_weighed (m : memory) (h : state) : left_over m != 0 -> (h.1 == j) ==> (mu (m h.1) != 0).
Proof.
rewrite /left_over mulf_eq0 negb_or /kept => /andP [kept_m _].
by apply/implyP => /eqP ->; move: kept_m; rewrite pnatr_eq0; case: (mu (m j) != 0).
Qed.

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

(** Behind the prompt, only the memories that it leaves are possible. *)
Lemma tau_kept (i : 'I_n) m h : kept m = 0 -> tau lifted e (lift ord0 i) (m, h) = 0.
Proof.
move=> zero; rewrite tau_formula from_left_lifted.
have -> : restrict m (take (lift ord0 i) e) = (fun=> kept m) :: take i (evidence (given M m) x).
  by rewrite -restrict_text /restrict -map_take.
rewrite /= (@from_left_ext _ _ (fun=> 0 * (0 : R))) => [|h']; last first.
  by rewrite zero mul0r big1 // => h0 _; rewrite !mulr0.
by rewrite (from_left_scale _ 0 (fun=> 0)) !mul0r.
Qed.

(** Behind the prompt, the aggregated message is that without it, for the memories that the prompt leaves. *)
Lemma tau_prompted (i : 'I_n) m h :
  tau lifted e (lift ord0 i) (m, h) =
  left_over m * joint (given M m) (put x i (mask X)) (lift ord0 i) h.
Proof.
have -> : joint (given M m) (put x i (mask X)) (lift ord0 i) h = tau (given M m) (evidence (given M m) x) i h.
  by rewrite tau_joint /joint -/(evidence _ _) evidence_put.
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

(** All messages are nonnegative, so a prediction is at most 1. *)
Lemma tau_prompted_ge0 i l : 0 <= tau lifted e i l.
Proof.
rewrite tau_joint; apply: sumr_ge0 => l0 _; apply: sumr_ge0 => p _.
apply: mulr_ge0.
  by apply: mulr_ge0; [exact: initial_ge0 | apply: prodr_ge0 => k _; exact: transition_ge0].
apply: prodr_ge0 => k _; rewrite tnth_mktuple; case: (k == i); first exact: ler01.
case: (unliftP ord0 k) => [k' ->|->]; last by rewrite tnth0 ler0n.
by rewrite tnthS tnth_map /lift_up /membed; case: (tnth x k') => [w|]; [exact: words_ge0 | exact: ler01].
Qed.

Lemma words_le1 w v h : words M w v h <= 1.
Proof.
rewrite -(words_sums_to_1 M v h) (bigD1 w) //= le_sum sumr_ge0 // => w' _; exact: words_ge0.
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
by rewrite -[leRHS]mul1r le_product ?words_le1 // divr_ge0 ?down_ge0 // ltW.
Qed.

End Prompted.

End Lifted.
