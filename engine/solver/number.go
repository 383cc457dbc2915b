package solver

import (
	"encoding/json"
	"fmt"
	"math/big"
	"strconv"
	"strings"
)

// decimal parses a number as definition files write it: 3, 1.7 or "0.350". The result is exact: a
// float counts as the shortest decimal that parses to it.
func decimal(v any) (*big.Rat, bool) {
	text := ""
	switch v := v.(type) {
	case nil:
		return nil, false
	case float64:
		text = strconv.FormatFloat(v, 'f', -1, 64)
	case int:
		text = strconv.Itoa(v)
	case int64:
		text = strconv.FormatInt(v, 10)
	case json.Number:
		text = v.String()
	case string:
		text = v
	default:
		text = fmt.Sprint(v)
	}
	text = strings.TrimSpace(text)
	if text == "" || len(text) > 40 || strings.ContainsAny(text, "eE/_xXpPbBoO") {
		return nil, false
	}
	return new(big.Rat).SetString(text)
}

// floorOf returns the greatest whole number <= r*n.
func floorOf(r *big.Rat, n int64) int64 {
	p := new(big.Int).Mul(r.Num(), big.NewInt(n))
	return new(big.Int).Div(p, r.Denom()).Int64()
}

// ceilOf returns the least whole number >= r*n.
func ceilOf(r *big.Rat, n int64) int64 {
	p := new(big.Int).Mul(r.Num(), big.NewInt(n))
	p.Neg(p)
	p.Div(p, r.Denom())
	return -p.Int64()
}

// whole multiplies all decimals by one factor that makes them whole numbers. It returns false if
// the results are too great for exact sums over a cluster.
func whole(rs []*big.Rat) ([]int64, bool) {
	scale := big.NewInt(1)
	for _, r := range rs {
		if r != nil {
			g := new(big.Int).GCD(nil, nil, scale, r.Denom())
			scale.Mul(scale, new(big.Int).Div(r.Denom(), g))
		}
	}
	out := make([]int64, len(rs))
	limit := big.NewInt(1 << 44)
	for i, r := range rs {
		if r == nil {
			continue
		}
		n := new(big.Int).Mul(r.Num(), scale)
		n.Div(n, r.Denom())
		if n.CmpAbs(limit) > 0 {
			return nil, false
		}
		out[i] = n.Int64()
	}
	return out, true
}

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return max(a, -a)
}

// meet combines two conditions on the remainder of a count. It returns false if no count of a
// cluster's nodes satisfies both.
func meet(r1, m1, r2, m2 int64) (int64, int64, bool) {
	if m1 < m2 {
		r1, m1, r2, m2 = r2, m2, r1, m1
	}
	r1, r2 = mod(r1, m1), mod(r2, m2)
	if m1 > 2*mostNodes { // then r1 is the only possible count
		return r1, m1, r1%m2 == r2
	}
	g := gcd(m1, m2)
	if (r2-r1)%g != 0 {
		return 0, 1, false
	}
	// r1 + k*m1 = r2 modulo m2, for k modulo m2/g.
	inverse := new(big.Int).ModInverse(big.NewInt(m1/g), big.NewInt(m2/g)).Int64()
	k := mod((r2-r1)/g*inverse, m2/g)
	return r1 + k*m1, m1 / g * m2, true
}
