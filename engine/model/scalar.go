package model

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Int is a whole number that files may also write as a string ("3").
type Int int

// UnmarshalJSON reads 3, 3.0 or "3".
func (i *Int) UnmarshalJSON(b []byte) error {
	s := strings.Trim(string(b), `"`)
	n, err := strconv.Atoi(s)
	if err != nil {
		f, ferr := strconv.ParseFloat(s, 64)
		if ferr != nil || f != math.Trunc(f) || math.Abs(f) > 1<<53 {
			return fmt.Errorf("%s is not a whole number", b)
		}
		n = int(f)
	}
	*i = Int(n)
	return nil
}

// Millis is a duration in milliseconds that files may also write as "10s", "15m", "2h" or "3d"
// (docs/spec/coopr.md 1.1, row 16).
type Millis int64

// UnmarshalJSON decodes a number of milliseconds, or a number with s, m, h or d.
func (m *Millis) UnmarshalJSON(b []byte) error {
	v, err := ParseMillis(strings.Trim(string(b), `"`))
	if err == nil {
		*m = v
	}
	return err
}

// ParseMillis parses "1500" (milliseconds), "10s", "15m", "2h" or "3d".
func ParseMillis(text string) (Millis, error) {
	s, unit := text, int64(1)
	if n := len(s); n > 0 {
		switch s[n-1] {
		case 's':
			unit = 1000
		case 'm':
			unit = 60_000
		case 'h':
			unit = 3_600_000
		case 'd':
			unit = 86_400_000
		}
		if unit > 1 {
			s = s[:n-1]
		}
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 || n > math.MaxInt64/unit || s[0] == '+' {
		return 0, fmt.Errorf("%q is not a duration: write milliseconds, or a whole number with s, m, h or d, such as \"2h\"", text)
	}
	return Millis(n * unit), nil
}

// String returns the duration in the largest unit that needs no fraction: "2h".
func (m Millis) String() string {
	for _, u := range []struct {
		ms   int64
		name string
	}{{86_400_000, "d"}, {3_600_000, "h"}, {60_000, "m"}, {1000, "s"}} {
		if m != 0 && int64(m)%u.ms == 0 {
			return strconv.FormatInt(int64(m)/u.ms, 10) + u.name
		}
	}
	return strconv.FormatInt(int64(m), 10) + "ms"
}

var (
	_ json.Unmarshaler = (*Int)(nil)
	_ json.Unmarshaler = (*Millis)(nil)
)
