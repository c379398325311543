// The logistic function, and the logarithm of 1 + exp(x).
fn sigmoid(x: f32) -> f32 {
    let small = exp_to_one(-abs(x));
    return select(small, 1.0, x >= 0.0) / (1.0 + small);
}

// The logarithm of 1 + exp(x): the larger of x and 0, plus twice the inverse hyperbolic tangent of
// e / (2 + e), where e = exp(-|x|), by its series. Logarithms of devices are coarse near 1.
fn softplus(x: f32) -> f32 {
    let e = exp_to_one(-abs(x));
    let s = e / (2.0 + e);
    let square = s * s;
    var sum = 1.0 / 17.0;
    sum = fma(sum, square, 1.0 / 15.0);
    sum = fma(sum, square, 1.0 / 13.0);
    sum = fma(sum, square, 1.0 / 11.0);
    sum = fma(sum, square, 1.0 / 9.0);
    sum = fma(sum, square, 1.0 / 7.0);
    sum = fma(sum, square, 1.0 / 5.0);
    sum = fma(sum, square, 1.0 / 3.0);
    sum = fma(sum, square, 1.0);
    return fma(2.0 * s, sum, max(x, 0.0));
}
