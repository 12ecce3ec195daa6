(** * The book's own statement O.1: a network that relabels its prediction *)

From mathcomp Require Import all_ssreflect all_algebra ring.
From hmm Require Import ordered_fields definitions exactness.

Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.

Import GRing.Theory Num.Theory Order.Theory.
Local Open Scope ring_scope.

Section Relabelling.

Variables (R : realFieldType) (H X : finType) (M : hmm R H X).
Notation W := (emission M).

(** A layer of gated units, one for each pair of token and state. The input of a unit is a weighted sum of the belief,
    plus the signal at the unit, plus a bias. *)
Record gated_layer := GatedLayer {
  from_state : X * H -> H -> R;
  bias : X * H -> R;
  to_token : X * H -> X -> R
}.

Definition unit_value (layer : gated_layer) (s : X -> H -> bool) (p : H -> R) (j : X * H) : R :=
  Num.max 0 (\sum_h from_state layer j h * p h + (s j.1 j.2)%:R + bias layer j).

(** The network computes W p, and the layer adds what its units write. *)
Definition network (layer : gated_layer) (s : X -> H -> bool) (p : H -> R) (w : X) : R :=
  \sum_h W w h * p h + \sum_j unit_value layer s p j * to_token layer j w.

(** Each column has a single 1. *)
Definition one_hot_columns (r : X -> H -> bool) : Prop := forall h, exists w, forall w', r w' h = (w' == w).

(** Proposition O.1. One choice of weights serves all one-hot R and all beliefs. The box does not say how the network
    reads the belief or where its prediction stands. Here its input to the layer is the belief itself, and the layer
    writes onto the prediction W p, as in the box's proof. *)
Proposition proposition_O_1 : exists layer : gated_layer, forall p : H -> R, belief p ->
  (forall w, network layer (fun _ _ => false) p w = \sum_h W w h * p h) /\
  (forall r : X -> H -> bool, one_hot_columns r ->
   forall w, network layer r p w = \sum_h (r w h)%:R * p h).
Proof.
exists (@GatedLayer (fun j h => (h == j.2)%:R) (fun=> -1) (fun j w => (w == j.1)%:R - W w j.2)) => p [p0 p1].
have p_le1 h : p h <= 1.
  by rewrite -p1 (bigD1 h) //= le_sum; apply: sumr_ge0 => k _.
have value s w h : unit_value (@GatedLayer (fun j h => (h == j.2)%:R) (fun=> -1) (fun j w => (w == j.1)%:R - W w j.2))
    s p (w, h) = (s w h)%:R * p h.
  rewrite /unit_value /= (eq_bigr (fun k => p k * (k == h)%:R)) => [|k _]; last by rewrite mulrC.
  rewrite sum_at; case: (s w h) => /=; last first.
    by rewrite addr0 mul0r; case: leP => // le; apply/eqP; rewrite eq_le le subr_le0 p_le1.
  by rewrite addrK mul1r; case: leP (p0 h).
have added s w : network (@GatedLayer (fun j h => (h == j.2)%:R) (fun=> -1) (fun j w => (w == j.1)%:R - W w j.2)) s p w =
    \sum_h W w h * p h + \sum_h \sum_w' (s w' h)%:R * p h * ((w == w')%:R - W w h).
  rewrite /network; congr (_ + _); rewrite [RHS]exchange_big pair_big; apply: eq_bigr => -[w' h] _.
  by rewrite value.
split=> [w|r hot w]; rewrite added.
  by rewrite [X in _ + X]big1 ?addr0 // => h _; rewrite big1 // => w' _; rewrite !mul0r.
rewrite -big_split; apply: eq_bigr => h _ /=; have [w1 rE] := hot h.
rewrite (eq_bigr (fun w' => p h * ((w == w')%:R - W w h) * (w' == w1)%:R)); last by move=> w' _; rewrite rE; ring.
by rewrite sum_at rE; ring.
Qed.

End Relabelling.
