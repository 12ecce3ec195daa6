(** * Facts about sums in an ordered field *)

(* MathComp 1 and MathComp 2 have them under different names, so we prove them once more. *)

From mathcomp Require Import all_ssreflect all_algebra.

Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.

Import GRing.Theory Num.Theory Order.Theory.
Local Open Scope ring_scope.

Section OrderedField.

Variable R : realFieldType.
Implicit Types x y z : R.

Lemma lt_sum x y z : 0 < x -> y <= z -> y < x + z.
Proof. by move=> x_gt0 /le_lt_trans; apply; rewrite -subr_gt0 addrK. Qed.

Lemma le_sum x y : (x <= x + y) = (0 <= y).
Proof. by rewrite -[x <= _]subr_ge0 addrAC subrr add0r. Qed.

Lemma le_product x y z : 0 <= x -> y <= z -> y * x <= z * x.
Proof. by move=> x_ge0 le_yz; rewrite -subr_ge0 -mulrBl mulr_ge0 ?subr_ge0. Qed.

Lemma le_quotient x y z : 0 < x -> (y / x <= z) = (y <= z * x).
Proof.
move=> x_gt0; apply/idP/idP => le.
  by rewrite -[y](divfK (lt0r_neq0 x_gt0)) le_product // ltW.
by rewrite -[z](mulfK (lt0r_neq0 x_gt0)) le_product // invr_ge0 ltW.
Qed.

End OrderedField.
