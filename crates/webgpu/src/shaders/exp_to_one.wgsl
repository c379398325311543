// e^x of x that is not above 0, with a relative error below 2e-7; 0 below -87.3, NaN for NaN.
// Cody-Waite reduction to |r| <= ln(2)/2 and the Taylor polynomial of degree 7, as on the CPU.
fn exp_to_one(x: f32) -> f32 {
    if x < -87.3 {
        return 0.0;
    }
    let n = round(x * 1.4426950408889634);
    var r = fma(n, -0.693359375, x);
    r = fma(n, 0.00021219444, r);
    var sum = fma(1.0 / 5040.0, r, 1.0 / 720.0);
    sum = fma(sum, r, 1.0 / 120.0);
    sum = fma(sum, r, 1.0 / 24.0);
    sum = fma(sum, r, 1.0 / 6.0);
    sum = fma(sum, r, 0.5);
    sum = fma(sum, r, 1.0);
    sum = fma(sum, r, 1.0);
    return sum * bitcast<f32>(u32(i32(n) + 127) << 23u);
}
