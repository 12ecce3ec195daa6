(** * Theorem 4.3 needs Assumption 4.2 *)

From mathcomp Require Import all_ssreflect all_algebra ring.
From hmm Require Import ordered_fields definitions messages left_inverse section_3 appendix_c attention.

Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.

Import GRing.Theory Num.Theory Order.Theory.
Local Open Scope ring_scope.

Section Turns.

Variable R : realFieldType.

(** One memory cell with a bit v. The chain starts in None and goes on to Some (false, t), where t is a fair coin. From
    there it goes to Some (true, t), and then takes turns between Some (true, false) and Some (true, true). *)
Notation S := [finite option (bool * bool)].
Notation X := [finite bool * bool].
Notation V := [finite bool].
Notation states := (state 1 S).
Notation memories := (memory 1 V).

Definition in_state (s : option (bool * bool)) : states := (ord0, s).
Definition turns_prior (m : memories) : R := 2%:R^-1.
Definition turns_start (h : states) : R := (h.2 == None)%:R.
Definition turns_move (h' h : states) : R :=
  if h.2 is Some (k, t) then (h'.2 == Some (true, k (+) t))%:R
  else if h'.2 is Some (false, _) then 2%:R^-1 else 0.

(** Some (false, t) says t, and Some (true, t) says whether v differs from t. *)
Definition word (v : bool) (s : option (bool * bool)) : bool * bool :=
  if s is Some (k, t) then (k, (k && v) (+) t) else (false, false).
Definition turns_words (x : bool * bool) (v : bool) (h : states) : R := (x == word v h.2)%:R.
Fact sum_bool (F : bool -> R) : \sum_v F v = F true + F false.
Proof. by rewrite big_bool. Qed.
Fact sum_states (F : states -> R) : \sum_h F h =
  F (in_state None) +
  (F (in_state (Some (true, true))) + F (in_state (Some (true, false))) +
   (F (in_state (Some (false, true))) + F (in_state (Some (false, false))))).
Proof.
rewrite (reindex in_state) /=; last first.
  by exists snd => [s _|[i s] _] //=; rewrite /in_state (ord1 i).
rewrite (bigD1 None) //=; congr (_ + _).
rewrite (reindex_omap Some id) /= => [|[s|] //].
rewrite (eq_bigl predT) => [|s]; last by rewrite /= eqxx.
rewrite (eq_bigr (fun s : bool * bool => F (in_state (Some (s.1, s.2))))) => [|[k t] _] //.
by rewrite -(pair_big predT predT (fun k t => F (in_state (Some (k, t))))) /= sum_bool !sum_bool.
Qed.
Definition all_cells (v : bool) : memories := [ffun=> v].
Fact sum_memories (F : memories -> R) : \sum_m F m = F (all_cells true) + F (all_cells false).
Proof.
rewrite -(sum_bool (fun v => F (all_cells v))) (reindex all_cells) //=.
exists (fun m : memories => m ord0) => [v _|m _]; first by rewrite ffunE.
by apply/ffunP => i; rewrite ffunE (ord1 i).
Qed.
Fact turns_prior_sum : \sum_m turns_prior m = 1.
Proof. by rewrite sum_memories /turns_prior; field. Qed.
Fact turns_start_sum : \sum_h turns_start h = 1.
Proof. by rewrite sum_states /turns_start /= !addr0. Qed.
Fact turns_move_sum h : \sum_h' turns_move h' h = 1.
Proof. rewrite sum_states /turns_move; case: h => i [[[] []]|] /=; rewrite ?(addr0, add0r) //. by field. Qed.
Fact turns_words_sum v h : \sum_x turns_words x v h = 1.
Proof. by rewrite (bigD1 (word v h.2)) //= /turns_words eqxx big1 ?addr0 // => x /negPf ->. Qed.
Fact half_ge0 : 0 <= 2%:R^-1 :> R.
Proof. by rewrite invr_ge0 ler0n. Qed.
Fact turns_move_ge0 h' h : 0 <= turns_move h' h.
Proof.
rewrite /turns_move; case: h => i [[k t]|] /=; first exact: ler0n.
by case: h' => i' [[[] t]|] //=; exact: half_ge0.
Qed.
Definition turns : memory_hmm R 1 V S X :=
  @MemoryHmm R 1 V S X turns_prior turns_start turns_move turns_words
    (fun=> half_ge0) (fun=> ler0n _ _) turns_move_ge0 (fun _ _ _ => ler0n _ _)
    turns_prior_sum turns_start_sum turns_move_sum turns_words_sum.
Definition three (o1 o2 o3 : option (bool * bool)) : text X 3 := [tuple o1; o2; o3].

(** The texts. *)
Definition says (t b : bool) : text X 3 := three (Some (false, t)) (Some (true, b)) (Some (true, ~~ b)).
Definition explains (o : option (bool * bool)) (v : bool) (s : option (bool * bool)) : R :=
  if o is Some x then (x == word v s)%:R else 1.
Fact embed_turns v o s : embed (given turns (all_cells v)) o (in_state s) = explains o v s.
Proof. by case: o => //= x; rewrite /turns_words ffunE. Qed.
Definition path_of (o1 o2 o3 : option (bool * bool)) (v t : bool) : R :=
  explains o1 v (Some (false, t)) * explains o2 v (Some (true, t)) * explains o3 v (Some (true, ~~ t)).
Fact back_turns v e es k t : back (given turns (all_cells v)) (e :: es) (in_state (Some (k, t))) =
  e (in_state (Some (true, k (+) t))) * back (given turns (all_cells v)) es (in_state (Some (true, k (+) t))).
Proof.
by rewrite [LHS]/= sum_states /turns_move /=; case: k t => [] [] /=; rewrite !(mul0r, mul1r, addr0, add0r).
Qed.
Fact back_start v e es : back (given turns (all_cells v)) (e :: es) (in_state None) =
  (e (in_state (Some (false, true))) * back (given turns (all_cells v)) es (in_state (Some (false, true))) +
   e (in_state (Some (false, false))) * back (given turns (all_cells v)) es (in_state (Some (false, false)))) / 2%:R.
Proof. by rewrite [LHS]/= sum_states /turns_move /=; field. Qed.
Fact Pr_three v o1 o2 o3 :
  Pr (given turns (all_cells v)) (three o1 o2 o3) = (path_of o1 o2 o3 v true + path_of o1 o2 o3 v false) / 2%:R.
Proof.
rewrite (Pr_joint _ _ ord0) sum_states !joint_first.
pose e := embed (given turns (all_cells v)).
have -> : tval (evidence (given turns (all_cells v)) (three o1 o2 o3)) = [:: e o1; e o2; e o3] by [].
rewrite back_start !back_turns /e !embed_turns /path_of /= /turns_start /=.
by field.
Qed.
Fact mPr_three o1 o2 o3 : mPr turns turns_prior (three o1 o2 o3) =
  (path_of o1 o2 o3 true true + path_of o1 o2 o3 true false +
   (path_of o1 o2 o3 false true + path_of o1 o2 o3 false false)) / 4%:R.
Proof. by rewrite /mPr sum_memories !Pr_three /turns_prior; field. Qed.
Ltac tidy := rewrite /= ?(mul0r, mulr0, mul1r, mulr1, addr0, add0r).
Fact put_three o1 o2 o3 (i : 'I_3) o : put (three o1 o2 o3) i o =
  three (if i == 0%N :> nat then o else o1) (if i == 1%N :> nat then o else o2) (if i == 2%N :> nat then o else o3).
Proof. apply: eq_from_tnth => k; rewrite tnth_mktuple. by case: i => [[|[|[|//]]] ?]; case: k => [[|[|[|//]]] ?]. Qed.
Fact says_possible t b : mPr turns turns_prior (says t b) = 4%:R^-1.
Proof. by rewrite mPr_three /path_of; case: t; case: b; tidy. Qed.

(** The prediction does not depend on t, and in front it does not depend on b either. *)
Fact says_G t b i w : mG turns turns_prior (says t b) i w = mG turns turns_prior (says false b) i w.
Proof.
rewrite /mG !put_three !mPr_three /path_of.
by case: i => [[|[|[|//]]] ?]; case: w t b => [[] []] [] []; tidy.
Qed.
Fact says_G_front b w : mG turns turns_prior (says false b) ord0 w = mG turns turns_prior (says false false) ord0 w.
Proof. by rewrite /mG !put_three !mPr_three /path_of; case: w b => [[] []] []; tidy. Qed.
Definition turns_mu (v : bool) : R := if v then -1 else 1.
Fact says_label t b : mlabel turns turns_prior turns_mu ord0 (says t b) = (t == b).
Proof.
have joint v : cell_joint turns turns_prior (says t b) ord0 v = (v == (t (+) b))%:R / 4%:R.
  rewrite /cell_joint big_mkcond /= sum_memories !ffunE !Pr_three /path_of /turns_prior.
  by case: v t b => [] [] []; tidy; rewrite // -invfM -natrM.
rewrite /mlabel sum_bool /cell_posterior !joint says_possible /turns_mu !mulfK ?invr_eq0 ?pnatr_eq0 //.
by case: t b joint => [] [] _; tidy; rewrite ?ler01 // oppr_ge0 ler10.
Qed.
Definition turns_D : {pred S} := pred1 (Some (true, false)).
Fact step_turns v (a : states -> R) s : step (given turns (all_cells v)) a (in_state s) =
  match s with
  | Some (true, t) => a (in_state (Some (false, t))) + a (in_state (Some (true, ~~ t)))
  | Some (false, t) => a (in_state None) / 2%:R
  | None => 0
  end.
Proof.
rewrite /step sum_states /turns_move.
by case: s => [[[] []]|]; rewrite /= ?(mul0r, mul1r, addr0, add0r) // 1?addrC // mulrC.
Qed.

Fact joint_three v o1 o2 o3 s (M := given turns (all_cells v)) :
  joint M (three o1 o2 o3) (lift ord0 (lift ord0 ord0)) (in_state s) =
    step M (fun h => step M (@turns_start) h * embed M o1 h) (in_state s) * embed M o2 (in_state s) *
    back M [:: embed M o3] (in_state s) /\
  joint M (three o1 o2 o3) (lift ord0 (lift ord0 (lift ord0 ord0))) (in_state s) =
    step M (fun h => step M (fun h => step M (@turns_start) h * embed M o1 h) h * embed M o2 h) (in_state s) *
    embed M o3 (in_state s) * 1.
Proof.
rewrite /joint !joint_weighted.
have -> : map_tuple (embed M) (three o1 o2 o3) =
    [tuple of embed M o1 :: [tuple of embed M o2 :: [tuple of embed M o3 :: [tuple]]]].
  by apply: val_inj.
split.
  by rewrite weighted_later weighted_later weighted_first.
by rewrite weighted_later weighted_later weighted_later weighted_first.
Qed.

(** The second position of the text surely has state Some (true, false) if t is false, the third if t is true. *)
Fact says_sure t b : exists i, sure turns turns_prior ord0 turns_D (says t b) i.
Proof.
have enough (i : 'I_3) : (forall v s, s != Some (true, false) ->
    joint (given turns (all_cells v)) (put (says t b) i (mask X)) (lift ord0 i) (in_state s) = 0) ->
  sure turns turns_prior ord0 turns_D (says t b) i.
  move=> zero; apply/forallP => -[k s]; rewrite (ord1 k) -/(in_state s); apply/implyP; apply: contraR => not_a.
  apply/eqP; apply: big1 => v _; rewrite /word_joint big_mkcond /= sum_memories.
  by rewrite !zero ?mulr0 ?if_same ?addr0.
case: t enough => enough.
  exists (lift ord0 (lift ord0 ord0)); apply: enough => v s not_a.
  rewrite put_three (joint_three _ _ _ _ _).2 step_turns.
  by case: s not_a => [[[] []]|] // _; rewrite ?step_turns ?embed_turns /turns_start; tidy.
exists (lift ord0 ord0); apply: enough => v s not_a.
rewrite put_three (joint_three _ _ _ _ _).1 step_turns.
by case: s not_a => [[[] []]|] // _; rewrite ?step_turns ?embed_turns /turns_start; tidy.
Qed.

(** No head labels the texts rightly: what it sees at the first position depends on t only, and what it sees and where
    it attends depends on b only. *)
Fact no_head (K : finType) (a : attention_head R 1 V S X K) :
  ~ forall t b, (t == b) =
    (0 <= attention a (mG turns turns_prior (says t b)) (fun i => membed turns (tnth (says t b) i))).
Proof.
pose g b := mG turns turns_prior (says false b).
pose u t := value a (g false ord0) (membed turns (Some (false, t))).
pose att b := attended a (g b).
pose k b : R := (ord0 \in att b)%:R / #|att b|%:R.
pose c b : R := (\sum_(i in att b | i != ord0) value a (g b i) (membed turns (tnth (says false b) i))) / #|att b|%:R.
have value_eq h h' e : h =1 h' -> value a h e = value a h' e.
  by move=> eq; apply: eq_bigr => p _; congr (_ * (_ * _)); apply: eq_bigr => w _; rewrite eq.
have form t b : attention a (mG turns turns_prior (says t b)) (fun i => membed turns (tnth (says t b) i)) =
    k b * u t + c b.
  have same_score i : score a (mG turns turns_prior (says t b)) i = score a (g b) i.
    apply: eq_bigr => q _; congr (_ * (_ + _)); apply: eq_bigr => w _.
    by rewrite says_G.
  have same : attended a (mG turns turns_prior (says t b)) = att b.
    apply/setP => i; rewrite !inE; apply: eq_forallb => i'; by rewrite !same_score.
  rewrite /attention same /k /c mulrAC -mulrDl; congr (_ / _).
  rewrite big_mkcond (bigD1 ord0) //= [X in _ = _ + X]big_mkcondl; congr (_ + _).
    case: (ord0 \in att b); rewrite ?mul1r ?mul0r //; apply: value_eq => w.
    by rewrite says_G says_G_front.
  apply: eq_bigr => i ne; case: (i \in att b) => //.
  have -> : tnth (says t b) i = tnth (says false b) i by case: i ne => [[|[|[|//]]] ?].
  by apply: value_eq => w; rewrite says_G.
have k_ge0 b : 0 <= k b by rewrite divr_ge0 ?ler0n.
move=> right.
have less t t' b : (t == b) = true -> (t' == b) = false -> u t' < u t.
  move=> yes no; rewrite ltNge; apply/negP => le.
  have := right t' b; rewrite no form; have := right t b; rewrite yes form => /esym ge0 /esym /negP; apply.
  apply: (le_trans (ge0 : is_true _)); rewrite -subr_ge0.
  have -> : k b * u t' + c b - (k b * u t + c b) = k b * (u t' - u t) by ring.
  by rewrite mulr_ge0 ?subr_ge0.
have := lt_trans (less true false true erefl erefl) (less false true false erefl erefl).
by rewrite ltxx.
Qed.

(** The columns of the recoverable states are independent. *)
Fact turns_independent c : (forall v h, ~~ recoverable ord0 turns_D h -> c v h = 0) ->
  (forall x, mixture turns c x = 0) -> forall v h, c v h = 0.
Proof.
move=> outside zero v h; have [|/outside //] := boolP (recoverable ord0 turns_D h).
case: h => i s /andP [_ /eqP /= ->]; rewrite (ord1 i) -/(in_state _).
have := zero (true, v); rewrite /mixture sum_states !sum_bool /= /turns_words /=.
rewrite !(outside _ (in_state None)) ?(outside _ (in_state (Some (true, true)))) //.
rewrite ?(outside _ (in_state (Some (false, _)))) //.
by case: v; tidy.
Qed.

End Turns.

(** Theorem 4.3 fails without the second half of Assumption 4.2: that the span of the recoverable columns meets
    that of all other columns in 0 only. Even if the former are independent, there may be no attention head that reads
    the label of a task from each text that can occur and has a sure position, whatever the size of its query. *)
Theorem theorem_4_3_needs_assumption_4_2 (R : realFieldType) :
  exists (N : nat) (V S X : finType) (M : memory_hmm R N V S X) (j : 'I_N) (D : {pred S}) (mu : V -> R),
  (forall c : V -> state N S -> R, (forall v h, ~~ recoverable j D h -> c v h = 0) ->
     (forall x, mixture M c x = 0) -> forall v h, c v h = 0) /\
  forall (K : finType) (a : attention_head R N V S X K),
  ~ forall n (x : text X n), 0 < mPr M (prior M) x -> (exists i, sure M (prior M) j D x i) ->
    mlabel M (prior M) mu j x = (0 <= attention a (mG M (prior M) x) (fun i => membed M (tnth x i))).
Proof.
exists 1%N, [finite bool], [finite option (bool * bool)], [finite bool * bool], (turns R), ord0, turns_D, (@turns_mu R).
split=> [|K a right]; first exact: turns_independent.
apply: (@no_head R K a) => t b; rewrite -(says_label R); apply: right; last exact: says_sure.
by rewrite says_possible invr_gt0 ltr0n.
Qed.
