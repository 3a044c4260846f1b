"""Rules that are wrong, each beside a sibling that is right: what the checker must tell apart."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Pair:
    """A wrong command and a right one that looks like it; both of one soundness class."""

    name: str
    wrong: str
    right: str
    soundness: str = "reassociating"
    allows: str = ""


_SCORES = "(MatMul false true 1.0 q k)"
_NORM = "(Mul x (Rsqrt (Add (ReduceMean a true (Mul x x)) c)))"
_ROWS = "(= 1 (vec-length a)) (= axis (vec-get a 0)) (= axis (- (rank x) 1)) (= eps (splat c)) (= t (dtype x)) (= s (shape e)) (= s (shape x)) (= n (last-dim x))"  # noqa: E501

PAIRS = (
    Pair(
        "dropped-scale",
        "(rule ((= e (MatMul ta tb 1.0 m b)) (= m (Mul x c)) (= v (splat c)) (= (shape m) (shape x))"
        ' (!= (dtype x) "i32") (!= (dtype x) "u32")) ((union e (MatMul ta tb 1.0 x b))))',
        "(rule ((= e (MatMul ta tb 1.0 m b)) (= m (Mul x c)) (= v (splat c)) (= (shape m) (shape x))"
        ' (!= (dtype x) "i32") (!= (dtype x) "u32")) ((union e (MatMul ta tb v x b))))',
        allows="non-finite",
    ),
    Pair(
        "permuted-keys",
        "(rule ((= e (Softmax axis (MatMul false true 1.0 q k))) (> (rank k) 1) (= r (rank k)))"
        " ((union e (Softmax axis (MatMul false true 1.0 q (Flip (vec-of (- r 2)) k))))))",
        "(rule ((= e (Softmax axis (MatMul false true 1.0 q k))) (> (rank k) 1) (= r (rank k)))"
        " ((union e (Softmax axis (MatMul false true 1.0 q (Flip (vec-of (- r 2)) (Flip (vec-of (- r 2)) k)))))))",
    ),
    Pair(
        "wrong-axis",
        "(rule ((= e (ReduceMax a true (Transpose p x))) (swaps-last-two p) (= 1 (vec-length a)))"
        " ((union e (Transpose p (ReduceMax a true x)))))",
        "(rule ((= e (ReduceMax a true (Transpose p x))) (swaps-last-two p) (= 1 (vec-length a)) (= i (vec-get a 0)))"
        " ((union e (Transpose p (ReduceMax (vec-of (vec-get p i)) true x)))))",
        "exact",
    ),
    Pair(
        "quotient-of-itself",
        "(rule ((= e (Div x x)) (= s (shape x)) (= t (dtype x))) ((union e (Full 1.0 t s))))",
        "(rule ((= e (Maximum x x))) ((union e x)))",
        "exact",
    ),
    Pair(
        "integers-reassociated",
        '(rule ((= e (Div (Mul a b) c)) (= t (dtype a)) (= "i32" t)) ((union e (Mul a (Div b c)))))',
        '(rule ((= e (Mul (Mul a b) c)) (= t (dtype a)) (= "i32" t)) ((union e (Mul a (Mul b c)))))',
        "exact",
    ),
    Pair(
        "integers-overflow",
        '(rule ((= e (Less (Add a c) (Add b c))) (= "i32" (dtype a)) (= s (shape a)) (= s (shape b)) (= s (shape e)))'
        " ((union e (Less a b))))",
        '(rule ((= e (Equal (Add a c) (Add b c))) (= "i32" (dtype a)) (= s (shape a)) (= s (shape b)) (= s (shape e)))'
        " ((union e (Equal a b))))",
        "exact",
    ),
    Pair(
        "floats-called-exact",
        '(rule ((= e (Add (Add a b) c)) (= "f32" (dtype a))) ((union e (Add a (Add b c)))))',
        '(rule ((= e (Add (Add a b) c)) (= "i32" (dtype a))) ((union e (Add a (Add b c)))))',
        "exact",
    ),
    Pair(
        "lost-broadcast",
        "(rule ((= e (Add x z)) (= 0.0 (splat z))) ((union e x)))",
        "(rule ((= e (Add x z)) (= 0.0 (splat z)) (= (shape e) (shape x))) ((union e x)))",
        "exact",
        "signed-zero",
    ),
    Pair(
        "lost-sum-broadcast",
        "(rewrite (ReduceSum a true (Add x (Expand s y))) (Add (ReduceSum a true x) (ReduceSum a true y))"
        ' :when ((= "f32" (dtype x)) (= (shape x) s)))',
        "(rewrite (ReduceSum a true (Add x (Expand s y))) (Add (ReduceSum a true x) (ReduceSum a true (Expand s y)))"
        ' :when ((= "f32" (dtype x)) (= (shape x) s)))',
        allows="non-finite",
    ),
    Pair(
        "swapped-where",
        "(rewrite (Where (Not c) a b) (Where c a b))",
        "(rewrite (Where (Not c) a b) (Where c b a))",
        "exact",
    ),
    Pair(
        "dropped-eps",
        f"(rule ((= e {_NORM}) {_ROWS}) ((union e (RmsNorm 0.0 x (Full 1.0 t (vec-of n))))))",
        f"(rule ((= e {_NORM}) {_ROWS}) ((union e (RmsNorm eps x (Full 1.0 t (vec-of n))))))",
    ),
    Pair(
        "softmax-over-another-axis",
        "(rule ((= e (Div w (ReduceSum a true w))) (= w (Exp (Sub x (ReduceMax b true x)))) (= 1 (vec-length a))"
        " (= axis (vec-get a 0))) ((union e (Softmax (- (rank x) 1) x))))",
        "(rule ((= e (Div w (ReduceSum a true w))) (= w (Exp (Sub x (ReduceMax a true x)))) (= 1 (vec-length a))"
        " (= axis (vec-get a 0))) ((union e (Softmax axis x))))",
    ),
    Pair(
        "concat-order",
        "(rewrite (Concat2 axis a b) (Concat2 axis b a))",
        "(rewrite (Concat2 axis (Neg a) (Neg b)) (Neg (Concat2 axis a b)))",
        "exact",
    ),
    Pair(
        "parts-of-something-else",
        "(rule ((= e (Concat2 axis a b)) (slice-range a x axis 0 n) (slice-range b y axis n m) (= (shape x) (shape y))"
        " (= m (vec-get (shape x) axis))) ((union e x)))",
        "(rule ((= e (Concat2 axis a b)) (slice-range a x axis 0 n) (slice-range b x axis n m)"
        " (= m (vec-get (shape x) axis))) ((union e x)))",
        "exact",
    ),
    Pair(
        "narrowing-casts",
        '(rewrite (Cast "f32" (Cast "f16" x)) x :when ((= "f32" (dtype x))))',
        '(rewrite (Cast "f16" (Cast "f32" x)) x :when ((= "f16" (dtype x))))',
        "exact",
    ),
    Pair(
        "sloppy-constant",
        "(rule ((= e (Mul x c)) (= v (splat c)) (< (abs (- v 1.0)) 0.05) (= (shape x) (shape e))) ((union e x)))",
        "(rule ((= e (Mul x c)) (= v (splat c)) (< (abs (- v 1.0)) 1e-7) (= (shape x) (shape e))) ((union e x)))",
    ),
    Pair(
        "comparison-with-nan",
        "(rewrite (Not (Less b a)) (LessEqual a b))",
        '(rewrite (Not (Less b a)) (LessEqual a b) :when ((= "i32" (dtype a))))',
        "exact",
    ),
    Pair(
        "masked-rows",
        f"(rule ((= e (MatMul false false 1.0 (Softmax 2 (Add {_SCORES} m)) v)) (= 3 (rank q)) (= 3 (rank k))"
        " (= 3 (rank v))"
        ' (= 2 (rank m)) (= "f32" (dtype q)) (= (vec-pop (shape k)) (vec-pop (shape v)))'
        " (= (vec-pop (vec-pop (shape q))) (vec-pop (vec-pop (shape k)))))"
        ' ((union e (Attention4 1.0 0.0 0 true false "none" 0.0 false 0 false false false q k v m))))',
        f"(rule ((= e (MatMul false false 1.0 (Softmax 2 (Add {_SCORES} m)) v)) (= 3 (rank q)) (= 3 (rank k))"
        " (= 3 (rank v))"
        ' (= 2 (rank m)) (= "f32" (dtype q)) (= (vec-pop (shape k)) (vec-pop (shape v)))'
        " (= (vec-pop (vec-pop (shape q))) (vec-pop (vec-pop (shape k)))) (= sm (shape m))"
        " (= sk (shape k)) (= sq (shape q))"
        " (> (vec-get sq 0) 0) (= (vec-get sm 1) (vec-get sk 1)) (= (vec-get sm 0) (vec-get sq 1)))"
        ' ((union e (Attention4 1.0 0.0 0 false false "add" 0.0 false 0 false false false q k v m))))',
        allows="nan-to-zero, non-finite",
    ),
)


def text(name: str, command: str, pair: Pair) -> str:
    """A rule file of one command."""
    allows = f";; allows: {pair.allows}\n" if pair.allows else ""
    return f";; rule: {name}\n;; soundness: {pair.soundness}\n;; why: For a test.\n{allows}{command}\n"
