package solver

import "math"

// lp is a bounded simplex that finds a point of
//
//	rowLo <= A x <= rowHi,  lo <= x <= hi
//
// by driving the sum of infeasibilities to zero. Columns may be added while it runs, and every call
// starts from the basis in which the last one ended.
//
// It works in floating point, and its results are not trusted: a point is rounded and checked in
// integers, and an infeasible result only proposes multipliers for a proof in integers
// (certificate.go). The products are written so that no machine fuses them with a sum; hence the
// simplex takes the same path on every machine.
type lp struct {
	m            int
	rowLo, rowHi []float64
	cols         []lpColumn

	// Variables 0..m-1 are the rows' activities, m+j is column j.
	basis []int32 // variable by basis position
	where []int32 // basis position by variable, -1 where it is not basic
	upper []bool  // non-basic variables at their upper bound
	binv  []float64
	beta  []float64
	moves int // pivots since the inverse was last recomputed

	// raise is the column to maximize once all bounds hold, or -1.
	raise int

	y, alpha, work []float64
	full           []int32
	meter          *meter
}

// lpColumn has 1 in each of rows and coef[i] in extra[i].
type lpColumn struct {
	rows   []int32
	extra  []int32
	coef   []float64
	lo, hi float64
}

const (
	lpTol    = 1e-7
	lpPivot  = 1e-7
	lpFresh  = 200
	lpStalls = 40
)

// lpState is the result of a run of the simplex.
type lpState int

const (
	lpFeasible lpState = iota
	lpInfeasible
	lpUnknown // the budget ended, or the numbers became too inexact
)

func newLP(m int, mt *meter) *lp {
	l := &lp{m: m, meter: mt, raise: -1,
		rowLo: make([]float64, m), rowHi: make([]float64, m),
		basis: make([]int32, m), where: make([]int32, m), upper: make([]bool, m),
		binv: make([]float64, m*m), beta: make([]float64, m),
		y: make([]float64, m), alpha: make([]float64, m), work: make([]float64, m),
	}
	l.reset()
	return l
}

// reset makes every row's activity basic again.
func (l *lp) reset() {
	clear(l.binv)
	for i := range l.m {
		l.basis[i], l.where[i] = int32(i), int32(i)
		l.binv[i*l.m+i] = -1
	}
	for j := range l.cols {
		l.where[l.m+j], l.upper[l.m+j] = -1, false
	}
	l.moves = 0
}

func (l *lp) addColumn(c lpColumn) int {
	l.cols = append(l.cols, c)
	l.where = append(l.where, -1)
	l.upper = append(l.upper, false)
	return len(l.cols) - 1
}

func (l *lp) bounds(v int32) (float64, float64) {
	if int(v) < l.m {
		return l.rowLo[v], l.rowHi[v]
	}
	c := &l.cols[int(v)-l.m]
	return c.lo, c.hi
}

// rest returns the value of a variable that is not basic.
func (l *lp) rest(v int32) float64 {
	lo, hi := l.bounds(v)
	if l.upper[v] {
		return hi
	}
	return lo
}

// x returns column j's value.
func (l *lp) x(j int) float64 {
	v := int32(l.m + j)
	if p := l.where[v]; p >= 0 {
		return l.beta[p]
	}
	return l.rest(v)
}

// refresh computes the values of the basic variables from the others.
func (l *lp) refresh() {
	r := l.work
	clear(r)
	for i := range l.m {
		if l.where[i] < 0 {
			r[i] += l.rest(int32(i))
		}
	}
	for j := range l.cols {
		v := int32(l.m + j)
		if l.where[v] >= 0 {
			continue
		}
		x := l.rest(v)
		if x == 0 {
			continue
		}
		c := &l.cols[j]
		for _, i := range c.rows {
			r[i] -= x
		}
		for n, i := range c.extra {
			r[i] -= float64(c.coef[n] * x)
		}
	}
	for i := range l.m {
		row := l.binv[i*l.m : (i+1)*l.m]
		s := 0.0
		for k, b := range row {
			if b != 0 {
				s += float64(b * r[k])
			}
		}
		l.beta[i] = s
	}
}

// invert recomputes the inverse of the basis. It returns false if the basis is singular.
func (l *lp) invert() bool {
	m := l.m
	a := make([]float64, m*m)
	for p, v := range l.basis {
		if int(v) < m {
			a[int(v)*m+p] = -1
			continue
		}
		c := &l.cols[int(v)-m]
		for _, i := range c.rows {
			a[int(i)*m+p] = 1
		}
		for n, i := range c.extra {
			a[int(i)*m+p] = c.coef[n]
		}
	}
	inv := l.binv
	clear(inv)
	for i := range m {
		inv[i*m+i] = 1
	}
	for c := range m {
		best, at := 0.0, -1
		for r := c; r < m; r++ {
			if v := math.Abs(a[r*m+c]); v > best {
				best, at = v, r
			}
		}
		if best < 1e-9 {
			return false
		}
		if at != c {
			for k := range m {
				a[at*m+k], a[c*m+k] = a[c*m+k], a[at*m+k]
				inv[at*m+k], inv[c*m+k] = inv[c*m+k], inv[at*m+k]
			}
		}
		d := 1 / a[c*m+c]
		for k := range m {
			a[c*m+k] *= d
			inv[c*m+k] *= d
		}
		for r := range m {
			f := a[r*m+c]
			if r == c || f == 0 {
				continue
			}
			for k := range m {
				if v := a[c*m+k]; v != 0 {
					a[r*m+k] -= float64(f * v)
				}
				if v := inv[c*m+k]; v != 0 {
					inv[r*m+k] -= float64(f * v)
				}
			}
		}
	}
	l.moves = 0
	return true
}

// dot returns the product of the multipliers y with a column.
func (l *lp) dot(c *lpColumn) float64 {
	s := 0.0
	for _, i := range c.rows {
		s += l.y[i]
	}
	for n, i := range c.extra {
		s += float64(c.coef[n] * l.y[i])
	}
	return s
}

// solve runs the simplex. It calls more when no existing column helps. more reads the multipliers
// l.y, adds columns and reports whether it added any.
func (l *lp) solve(more func() bool) lpState {
	l.refresh()
	stalls, fresh := 0, 0
	for {
		if !l.meter.spend(1 + l.m*l.m/1000) {
			return lpUnknown
		}
		if l.moves > lpFresh {
			if !l.invert() {
				l.reset()
				if fresh++; fresh > 5 {
					return lpUnknown
				}
			}
			l.refresh()
		}
		short := l.multipliers()
		if !short && !l.rising() {
			return lpFeasible
		}
		bland := stalls > lpStalls
		v, up := l.entering(bland, short)
		if v < 0 {
			if more != nil && more() {
				continue
			}
			if !short {
				return lpFeasible
			}
			return lpInfeasible // the caller proves it, or calls renew
		}
		if l.step(v, up, bland) > 1e-10 {
			stalls = 0
		} else if stalls++; stalls > 200*(l.m+10) {
			return lpUnknown
		}
	}
}

// renew recomputes the inverse. It returns false if the inverse is already fresh.
func (l *lp) renew() bool {
	if l.moves == 0 {
		return false
	}
	if !l.invert() {
		l.reset()
	}
	return true
}

// multipliers computes y, the prices of the rows for the sum of infeasibilities. It returns false
// if nothing is infeasible.
func (l *lp) multipliers() bool {
	clear(l.y)
	bad := false
	for p, v := range l.basis {
		lo, hi := l.bounds(v)
		c := 0.0
		switch b := l.beta[p]; {
		case b < lo-lpTol:
			c = -1
		case b > hi+lpTol:
			c = 1
		default:
			continue
		}
		bad = true
		for k, b := range l.binv[p*l.m : (p+1)*l.m] {
			if b != 0 {
				l.y[k] += float64(c * b)
			}
		}
	}
	return bad
}

// rising computes y, the prices of the rows for the column to maximize. It returns false if there
// is no such column or if it is at its upper bound.
func (l *lp) rising() bool {
	if l.raise < 0 {
		return false
	}
	v := l.m + l.raise
	p := l.where[v]
	if p < 0 {
		clear(l.y)
		if l.upper[v] || l.cols[l.raise].lo >= l.cols[l.raise].hi {
			return false
		}
		// The column to maximize is not in the basis and can rise. No prices are needed, because entering
		// chooses this column without them.
		return true
	}
	for k, b := range l.binv[int(p)*l.m : int(p+1)*l.m] {
		l.y[k] = -b
	}
	return true
}

// entering returns the variable that helps most and whether it has to rise, or -1 if none helps. If
// short, a variable helps by lowering the infeasibility, otherwise by raising the column to
// maximize. If bland, the first variable that helps is taken, which breaks cycles.
func (l *lp) entering(bland, short bool) (int32, bool) {
	if !short && l.where[l.m+l.raise] < 0 {
		return int32(l.m + l.raise), true
	}
	best, at, rise := 1e-8, int32(-1), false
	try := func(v int32, gain float64) bool { // gain is the effect of raising v by one
		if l.upper[v] {
			gain = -gain
		}
		if gain > best {
			best, at, rise = gain, v, !l.upper[v]
			return bland
		}
		return false
	}
	for i := range l.m {
		if l.where[i] < 0 && l.rowLo[i] < l.rowHi[i] && try(int32(i), -l.y[i]) {
			return at, rise
		}
	}
	for j := range l.cols {
		c := &l.cols[j]
		if l.where[l.m+j] < 0 && c.lo < c.hi && try(int32(l.m+j), l.dot(c)) {
			return at, rise
		}
	}
	return at, rise
}

// step moves variable v until a bound blocks it, and returns the distance.
func (l *lp) step(v int32, rise, bland bool) float64 {
	m := l.m
	if int(v) < m {
		for i := range m {
			l.alpha[i] = -l.binv[i*m+int(v)]
		}
	} else {
		c := &l.cols[int(v)-m]
		for i := range m {
			row := l.binv[i*m : (i+1)*m]
			s := 0.0
			for _, r := range c.rows {
				s += row[r]
			}
			for n, r := range c.extra {
				s += float64(c.coef[n] * row[r])
			}
			l.alpha[i] = s
		}
	}
	dir := 1.0
	if !rise {
		dir = -1
	}
	lo, hi := l.bounds(v)
	t, leave, leaveUp, size := hi-lo, -1, false, 0.0
	for i, a := range l.alpha {
		if math.Abs(a) < lpPivot {
			continue
		}
		d := -dir * a
		blo, bhi := l.bounds(l.basis[i])
		var room float64
		var atUp bool
		switch b := l.beta[i]; {
		case d > 0 && b < blo-lpTol:
			room, atUp = (blo-b)/d, false
		case d > 0 && b <= bhi+lpTol:
			room, atUp = (bhi-b)/d, true
		case d < 0 && b > bhi+lpTol:
			room, atUp = (bhi-b)/d, true
		case d < 0 && b >= blo-lpTol:
			room, atUp = (blo-b)/d, false
		default:
			continue
		}
		room = math.Max(room, 0)
		better := room < t-1e-10
		if !better && leave >= 0 && room <= t+1e-10 {
			if bland {
				better = l.basis[i] < l.basis[leave]
			} else {
				better = math.Abs(a) > size
			}
		}
		if better {
			t, leave, leaveUp, size = math.Min(room, t), i, atUp, math.Abs(a)
		}
	}
	if leave < 0 { // v reaches its own opposite bound
		l.upper[v] = rise
		for i, a := range l.alpha {
			l.beta[i] -= float64(float64(dir*a) * t)
		}
		return t
	}
	from := lo
	if l.upper[v] {
		from = hi
	}
	for i, a := range l.alpha {
		l.beta[i] -= float64(float64(dir*a) * t)
	}
	l.beta[leave] = from + float64(dir*t)
	out := l.basis[leave]
	l.where[out], l.upper[out] = -1, leaveUp
	l.basis[leave], l.where[v] = v, int32(leave)
	pivot := 1 / l.alpha[leave]
	row := l.binv[leave*m : (leave+1)*m]
	l.full = l.full[:0]
	for k, b := range row {
		if b != 0 {
			row[k] = b * pivot
			l.full = append(l.full, int32(k))
		}
	}
	for i, a := range l.alpha {
		if i == leave || math.Abs(a) < 1e-13 {
			continue
		}
		other := l.binv[i*m : (i+1)*m : (i+1)*m]
		if len(l.full) == m {
			for k, b := range row {
				other[k] -= float64(a * b)
			}
			continue
		}
		for _, k := range l.full {
			other[k] -= float64(a * row[k])
		}
	}
	l.moves++
	return t
}
