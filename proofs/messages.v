(** * Messages: the sums over all paths, computed from the left and from the right *)

From mathcomp Require Import all_ssreflect all_algebra ring.
From hmm Require Import definitions.

Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.

Import GRing.Theory Num.Theory Order.Theory.
Local Open Scope ring_scope.

Section Messages.

Variables (R : realFieldType) (H X : finType) (M : hmm R H X).
Notation A := (transition M).
Notation W := (emission M).
Notation embedding := (embedding R H).

(** A sum over all paths is a sum over the first state and over all paths after it. *)
Lemma sum_over_paths n (F : n.+1.-tuple H -> R) :
  \sum_p F p = \sum_h \sum_(p : n.-tuple H) F [tuple of h :: p].
Proof.
rewrite pair_big /= (reindex (fun hp : H * n.-tuple H => [tuple of hp.1 :: hp.2])) //=.
exists (fun p : n.+1.-tuple H => (thead p, [tuple of behead p])) => [[h p] _ | p _] /=.
  by congr (_, _); apply: val_inj.
by rewrite -tuple_eta.
Qed.

(** The right message: the probability of what comes after a state. *)
Fixpoint back (e : seq embedding) (h : H) : R :=
  if e is v :: e' then \sum_h' A h' h * v h' * back e' h' else 1.

(** One step: what stands at the next position, joined with the next state. *)
Definition step (a : H -> R) (h' : H) : R := \sum_h A h' h * a h.

(** The probability of the steps of a path after its first state. *)
Definition steps n (h0 : H) (p : n.-tuple H) : R :=
  \prod_(i < n) A (tnth p i) (tnth [tuple of h0 :: p] (widen_ord (leqnSn n) i)).

Lemma steps_cons n h0 h (p : n.-tuple H) :
  steps h0 [tuple of h :: p] = A h h0 * steps h p.
Proof.
rewrite /steps big_ord_recl !tnth0 /=; congr (_ * _).
apply: eq_bigr => i _; rewrite tnthS; congr (A _ _).
have -> : widen_ord (leqnSn n.+1) (lift ord0 i) = lift ord0 (widen_ord (leqnSn n) i) by apply: val_inj.
by rewrite tnthS.
Qed.

Lemma explained_cons n (v : embedding) (e : n.-tuple embedding) h (p : n.-tuple H) :
  explained [tuple of v :: e] [tuple of h :: p] = v h * explained e p.
Proof.
rewrite /explained big_ord_recl !tnth0 /=; congr (_ * _).
by apply: eq_bigr => i _; rewrite !tnthS.
Qed.

Lemma sum_is_back n (e : n.-tuple embedding) h :
  \sum_(p : n.-tuple H) steps h p * explained e p = back e h.
Proof.
elim: n e h => [|n IH] e h.
  rewrite (tuple0 e) (eq_bigl (pred1 [tuple])) => [|p]; last by rewrite (tuple0 p) /= eqxx.
  by rewrite big_pred1_eq /steps /explained !big_ord0 mulr1.
rewrite (tuple_eta e) sum_over_paths /=.
apply: eq_bigr => h' _; rewrite -(IH [tuple of behead e]) big_distrr /=.
by apply: eq_bigr => p _; rewrite steps_cons explained_cons mulrACA.
Qed.

(** The same sums with any weights in place of the start distribution. *)
Definition weighted (a : H -> R) n (e : n.-tuple embedding) (k : 'I_n.+1) (h : H) : R :=
  \sum_h0 \sum_(p : n.-tuple H | tnth [tuple of h0 :: p] k == h) a h0 * steps h0 p * explained e p.

Lemma joint_weighted n (e : n.-tuple embedding) k h :
  joint_e M e k h = weighted (initial M) e k h.
Proof. by []. Qed.

Lemma weighted_first a n (e : n.-tuple embedding) h :
  weighted a e ord0 h = a h * back e h.
Proof.
rewrite /weighted (bigD1 h) //= [X in _ + X]big1 ?addr0 => [|h0 ne]; last first.
  by rewrite big_pred0 // => p; rewrite tnth0 (negPf ne).
rewrite -sum_is_back big_distrr /=.
by apply: eq_big => [p|p _]; rewrite ?tnth0 ?eqxx // mulrA.
Qed.

Lemma weighted_later a n v (e : n.-tuple embedding) (k : 'I_n.+1) h :
  weighted a [tuple of v :: e] (lift ord0 k) h = weighted (fun h' => step a h' * v h') e k h.
Proof.
rewrite /weighted.
transitivity (\sum_h0 \sum_h1 \sum_(p : n.-tuple H | tnth [tuple of h1 :: p] k == h)
   a h0 * (A h1 h0 * steps h1 p) * (v h1 * explained e p)).
  apply: eq_bigr => h0 _; rewrite big_mkcond sum_over_paths; apply: eq_bigr => h1 _.
  rewrite -big_mkcond /=; apply: eq_big => [p|p _]; first by rewrite tnthS.
  by rewrite steps_cons explained_cons.
rewrite exchange_big /=; apply: eq_bigr => h1 _.
rewrite exchange_big /=; apply: eq_bigr => p _.
rewrite /step !big_distrl /=; apply: eq_bigr => h0 _.
by ring.
Qed.

End Messages.
