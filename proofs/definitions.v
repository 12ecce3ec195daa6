(** * What the paper defines: hidden Markov models, tasks, heads and prompts *)

From mathcomp Require Import all_ssreflect all_algebra.

Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.

Import GRing.Theory Num.Theory Order.Theory.
Local Open Scope ring_scope.

(* [finite T] is the type T together with the fact that it is finite. MathComp 1 and MathComp 2 write this differently. *)
Definition finite_type (F : finType) of phant F : finType := F.
Notation "[ 'finite' T ]" := (finite_type (Phant T%type)) (at level 0, format "[ 'finite'  T ]").

(** ** Section 2: hidden Markov models *)

Section HMM.

Variable R : realFieldType. (* an ordered field, for example the rational or the real numbers *)
Variables H X : finType. (* the hidden states and the tokens *)

(** A hidden Markov model. The columns of A and W sum to 1. *)
Record hmm := Hmm {
  initial : H -> R;          (* P[H_0 = h] *)
  transition : H -> H -> R;  (* A: P[H_i = h' | H_{i-1} = h], at h' and h *)
  emission : X -> H -> R;    (* W: P[X_i = x | H_i = h], at x and h *)
  initial_ge0 : forall h, 0 <= initial h;
  transition_ge0 : forall h' h, 0 <= transition h' h;
  emission_ge0 : forall x h, 0 <= emission x h;
  initial_sums_to_1 : \sum_h initial h = 1;
  transition_sums_to_1 : forall h, \sum_h' transition h' h = 1;
  emission_sums_to_1 : forall h, \sum_x emission x h = 1
}.

(** A text has a token or a mask at each position. *)
Definition text n := n.-tuple (option X).
Definition mask : option X := None.

(** The embedding e(x) of a token, with which each state explains it. A mask is explained by every state. *)
Definition embedding := H -> R.

Variable M : hmm.

Definition embed (token : option X) : embedding :=
  fun h => if token is Some x then emission M x h else 1.

(** The probability of a path: of state h0 at time 0, and of the states in p at times 1, 2, ... *)
Definition path_probability n (h0 : H) (p : n.-tuple H) : R :=
  initial M h0 * \prod_(i < n) transition M (tnth p i) (tnth [tuple of h0 :: p] (widen_ord (leqnSn n) i)).

(** The probability of what stands at each position, given the path. *)
Definition explained n (e : n.-tuple embedding) (p : n.-tuple H) : R :=
  \prod_(i < n) tnth e i (tnth p i).

(** P[X = x], summed over all paths. *)
Definition Pr_e n (e : n.-tuple embedding) : R :=
  \sum_h0 \sum_(p : n.-tuple H) path_probability h0 p * explained e p.

(** P[H_k = h, X = x], summed over the paths that are in state h at time k. *)
Definition joint_e n (e : n.-tuple embedding) (k : 'I_n.+1) (h : H) : R :=
  \sum_h0 \sum_(p : n.-tuple H | tnth [tuple of h0 :: p] k == h) path_probability h0 p * explained e p.

Definition Pr n (x : text n) : R := Pr_e (map_tuple embed x).
Definition joint n (x : text n) (k : 'I_n.+1) (h : H) : R := joint_e (map_tuple embed x) k h.

(** P[H_k = h | X = x] *)
Definition posterior n (x : text n) (k : 'I_n.+1) (h : H) : R := joint x k h / Pr x.

(** The text with another entry at position i. *)
Definition put n (x : text n) (i : 'I_n) (token : option X) : text n :=
  [tuple if j == i then token else tnth x j | j < n].

(** G_i(x) at token w: P[X_i = w | X_{-i} = x_{-i}]. *)
Definition G n (x : text n) (i : 'I_n) (w : X) : R := Pr (put x i (Some w)) / Pr (put x i mask).

(** The task (3.1): the label of a text. *)
Definition label (mu : H -> R) n (x : text n) : bool := 0 <= \sum_h mu h * posterior x ord0 h.

(** The columns of W at the states of D are linearly independent. *)
Definition independent_columns (D : {pred H}) : Prop :=
  forall c : H -> R, (forall h, h \notin D -> c h = 0) ->
  (forall x, \sum_h emission M x h * c h = 0) -> forall h, c h = 0.

(** P[H_{k+n} = h' | H_k = h], at h and h' *)
Fixpoint after (n : nat) (h h' : H) : R :=
  if n is n'.+1 then \sum_h1 transition M h' h1 * after n' h h1 else (h' == h)%:R.

(** Assumption 3.1 *)
Definition assumption_3_1 : Prop := independent_columns predT.

(** Assumption 3.2: the chain is ergodic, and it can start in every state. A finite chain is ergodic if after some
    number of steps every state can be reached from every state. *)
Definition assumption_3_2 : Prop :=
  (exists n, forall h h', 0 < after n h h') /\ (forall h, 0 < initial M h).

(** ** The model on embeddings, as in Appendix C *)

(** P[H_k = h] *)
Fixpoint marginal (k : nat) : H -> R :=
  if k is k'.+1 then fun h' => \sum_h transition M h' h * marginal k' h else initial M.

(** P[H_k = h | H_{k+1} = h'] *)
Definition backwards (k : nat) (h h' : H) : R :=
  transition M h' h * marginal k h / marginal k.+1 h'.

(** The message from the right to time k, where e are the embeddings after time k. *)
Fixpoint from_right (k : nat) (e : seq embedding) : H -> R :=
  if e is v :: e'
  then fun h => \sum_h' backwards k h h' * (from_right k.+1 e' h' * v h')
  else marginal k.

(** The message from the left to the time after the embeddings e, which begin after time k with the message a. *)
Fixpoint from_left (a : H -> R) (e : seq embedding) : H -> R :=
  if e is v :: e'
  then from_left (fun h' => \sum_h transition M h' h * (a h * v h)) e'
  else a.

(** The aggregated message (C.1) at position i, which is time i + 1. *)
Definition tau n (e : n.-tuple embedding) (i : 'I_n) (h : H) : R :=
  let right := from_right i.+1 (drop i.+1 e) h in
  let left := from_left (marginal 1) (take i e) h in
  if i == 0%N :> nat then right
  else if i.+1 == n then left
  else right * left / marginal i.+1 h.

Definition Gbar n (e : n.-tuple embedding) (i : 'I_n) (w : X) : R :=
  let norm := \sum_h tau e i h in
  if norm == 0 then 0 else \sum_h emission M w h * (tau e i h / norm).

(** ** Section 3.1: prompts *)

(** Assumption 3.5: the essential states D are those that can follow the states of B. *)
Record assumption_3_5 (mu : H -> R) (D B : {pred H}) : Prop := Assumption35 {
  independent_essential : independent_columns D;
  weighs_essential : forall h, mu h != 0 -> h \in D;
  essential_reached : forall h', h' \in D <-> exists2 h, h \in B & transition M h' h != 0
}.

(** A prompt stands in front of a gap and the text. *)
Definition prompted n (u : embedding) (x : text n) : n.+2.-tuple embedding :=
  [tuple of u :: embed mask :: map_tuple embed x].

Definition gap n : 'I_n.+2 := lift ord0 ord0.

End HMM.

(** ** Section 4: models with a memory *)

Section Memory.

Variables (R : realFieldType) (N : nat).
Variables V S X : finType. (* memory values, syntax states, tokens *)

Definition state : finType := [finite 'I_N * S]. (* h = (j, s): a memory cell and a syntax state *)
Definition memory : finType := [finite {ffun 'I_N -> V}]. (* the values of all cells *)

Record memory_hmm := MemoryHmm {
  prior : memory -> R;                  (* P[M = m] *)
  start : state -> R;                   (* P[H_0 = h] *)
  move : state -> state -> R;           (* A *)
  words : X -> V -> state -> R;         (* W: P[X_i = x | M_j = v, H_i = h], h in cell j, at x, v and h *)
  prior_ge0 : forall m, 0 <= prior m;
  start_ge0 : forall h, 0 <= start h;
  move_ge0 : forall h' h, 0 <= move h' h;
  words_ge0 : forall x v h, 0 <= words x v h;
  prior_sums_to_1 : \sum_m prior m = 1;
  start_sums_to_1 : \sum_h start h = 1;
  move_sums_to_1 : forall h, \sum_h' move h' h = 1;
  words_sums_to_1 : forall v h, \sum_x words x v h = 1
}.

Variable M : memory_hmm.

(** Given the memory, the text is that of a hidden Markov model. *)
Definition given (m : memory) : hmm R state X :=
  @Hmm R state X (start M) (move M) (fun x h => words M x (m h.1) h)
    (start_ge0 M) (move_ge0 M) (fun x h => words_ge0 M x (m h.1) h)
    (start_sums_to_1 M) (move_sums_to_1 M) (fun h => words_sums_to_1 M (m h.1) h).

(** Some definitions weigh the memories by any omega. It is the prior, or what a prompt leaves of it. *)
Variable omega : memory -> R.

(** P[X = x] *)
Definition mPr n (x : text X n) : R := \sum_m omega m * Pr (given m) x.

(** P[M_j = v, X = x] *)
Definition cell_joint n (x : text X n) (j : 'I_N) (v : V) : R :=
  \sum_(m : memory | m j == v) omega m * Pr (given m) x.

(** P[M_j = v | X = x] *)
Definition cell_posterior n (x : text X n) j v : R := cell_joint x j v / mPr x.

(** P[M_j = v, H_i = h, X_{-i} = x_{-i}], where j is the cell of h, and i is the time of a position. *)
Definition word_joint n (x : text X n) (i : 'I_n) (v : V) (h : state) : R :=
  \sum_(m : memory | m h.1 == v) omega m * joint (given m) (put x i (mask X)) (lift ord0 i) h.

(** G_i(x) at token w *)
Definition mG n (x : text X n) (i : 'I_n) (w : X) : R := mPr (put x i (Some w)) / mPr (put x i (mask X)).

(** The embedding of a token: P[X_i = x | M_j = v, H_i = h]. *)
Definition membed (token : option X) (v : V) (h : state) : R :=
  if token is Some x then words M x v h else 1.

(** The task: the label of a text. *)
Definition mlabel (mu : V -> R) (j : 'I_N) n (x : text X n) : bool := 0 <= \sum_v mu v * cell_posterior x j v.

(** An attention head (4.1) and (4.2). K indexes the entries of the query. *)
Record attention_head (K : finType) := AttentionHead {
  query : K -> R;                          (* q *)
  keys : K -> X -> R;                      (* Theta^(K) *)
  positions : nat -> K -> R;               (* beta_i *)
  values : V * state -> X -> R;            (* Theta^(V) *)
  weights : V * state -> R                 (* b *)
}.

Variables (K : finType) (a : attention_head K).

Definition score n (g : 'I_n -> X -> R) (i : 'I_n) : R :=
  \sum_k query a k * (\sum_w keys a k w * g i w + positions a i k).

Definition attended n (g : 'I_n -> X -> R) : {set 'I_n} :=
  [set i | [forall i' : 'I_n, score g i' <= score g i]].

Definition value (g : X -> R) (e : V -> state -> R) : R :=
  \sum_p weights a p * ((\sum_w values a p w * g w) * e p.1 p.2).

Definition attention n (g : 'I_n -> X -> R) (e : 'I_n -> V -> state -> R) : R :=
  (\sum_(i in attended g) value (g i) (e i)) / #|attended g|%:R.

(** The recoverable states j* x D of Assumptions 4.2, 4.5 and D.5. *)
Definition recoverable (j : 'I_N) (D : {pred S}) (h : state) : bool := (h.1 == j) && (h.2 \in D).

Definition mixture (c : V -> state -> R) (x : X) : R := \sum_h \sum_v words M x v h * c v h.

(** The columns of recoverable states are independent, and their span meets that of all other columns in 0 only.
    Only the columns of pairs (v, h) in P count. *)
Record separated (P : V -> state -> bool) (j : 'I_N) (D : {pred S}) : Prop := Separated {
  independent_recoverable : forall c,
    (forall v h, ~~ (recoverable j D h && P v h) -> c v h = 0) ->
    (forall x, mixture c x = 0) -> forall v h, c v h = 0;
  disjoint_spans : forall c c',
    (forall v h, ~~ (recoverable j D h && P v h) -> c v h = 0) ->
    (forall v h, recoverable j D h || ~~ P v h -> c' v h = 0) ->
    (forall x, mixture c x = mixture c' x) -> forall x, mixture c x = 0
}.

Definition assumption_4_2 (j : 'I_N) (D : {pred S}) : Prop := separated (fun _ _ => true) j D.

(** Assumption 4.4: the start is stationary. No proof here needs the chain to be ergodic. *)
Definition stationary : Prop := forall h', \sum_h move M h' h * start M h = start M h'.

(** Assumption D.5, and Assumption 4.5 if there is one cell. In the cell of the task, only values with a weight count. *)
Definition assumption_D_5 (mu : V -> R) (j : 'I_N) (D : {pred S}) : Prop :=
  separated (fun v h => (h.1 == j) ==> (mu v != 0)) j D.

(** (4.3): the state at position i is surely recoverable, given the rest of the text. *)
Definition sure (j : 'I_N) (D : {pred S}) n (x : text X n) (i : 'I_n) : bool :=
  [forall h : state, ((\sum_v word_joint x i v h) != 0) ==> recoverable j D h].

End Memory.

Definition assumption_4_5 (R : realFieldType) (V S X : finType) (M : memory_hmm R 1 V S X) (mu : V -> R)
    (D : {pred S}) : Prop :=
  assumption_D_5 M mu ord0 D.
