package chaos

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"
)

// op is an operation of a client on a key, with the answer.
type op struct {
	client    int
	key       string
	what      string // put, delete or get
	value     string // written or read
	version   int    // in the answer; 0: none, or versions are not compared
	found     bool   // read or deleted
	unknown   bool   // a write without an answer: it may have been carried out or not, or may be yet
	call, end time.Duration
}

// String returns the operation for people.
func (o op) String() string {
	answer := fmt.Sprintf("version %d", o.version)
	switch {
	case o.unknown:
		answer = "no answer"
	case o.what != "put" && !o.found:
		answer = "not found"
	case o.what == "get":
		answer = fmt.Sprintf("%q, version %d", o.value, o.version)
	case o.what == "delete":
		answer = "deleted"
	}
	what := o.what + " " + o.key
	if o.what == "put" {
		what += fmt.Sprintf(" %q", o.value)
	}
	return fmt.Sprintf("%9.3fs – %9.3fs client %d: %s: %s", o.call.Seconds(), o.end.Seconds(), o.client, what, answer)
}

// history collects the operations of all clients.
type history struct {
	began time.Time
	mu    sync.Mutex
	ops   []op
	acks  []time.Duration // when a write was acknowledged
}

func (h *history) now() time.Duration { return time.Since(h.began) }

func (h *history) add(o op) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ops = append(h.ops, o)
	if o.what != "get" && !o.unknown {
		h.acks = append(h.acks, o.end)
	}
}

// gap returns the longest time without an acknowledged write that overlaps with a time.
func (h *history) gap(from, to time.Duration) time.Duration {
	h.mu.Lock()
	acks := slices.Sorted(slices.Values(h.acks))
	h.mu.Unlock()
	longest, last := time.Duration(0), time.Duration(0)
	for _, at := range append(acks, max(to, last)) {
		if at >= from && last <= to {
			longest = max(longest, at-last)
		}
		last = max(last, at)
	}
	return longest
}

// value is the state of one key in the model.
type value struct {
	found   bool
	value   string
	version int // 0: not known
}

// register is the model of one key, which holds a value with a version.
var register = porcupine.Model{
	Init: func() any { return value{} },
	Step: func(state, input, _ any) (bool, any) {
		s, o := state.(value), input.(op)
		switch o.what {
		case "put":
			next := value{true, o.value, o.version}
			follows := s.found && s.version > 0
			switch {
			case o.version == 0 && follows:
				next.version = s.version + 1
			case o.version > 0 && follows && o.version != s.version+1:
				return false, s
			}
			return true, next
		case "delete":
			return o.unknown || s.found == o.found, value{}
		default:
			if o.found != s.found || o.value != s.value || o.version > 0 && s.version > 0 && o.version != s.version {
				return false, s
			}
			if s.version == 0 {
				s.version = o.version
			}
			return true, s
		}
	},
}

// checkTimeout bounds the search for an order. An undecided history is reported, not believed.
const checkTimeout = time.Minute

// linearizable checks the history of one key.
func linearizable(ops []op) error {
	var list []porcupine.Operation
	for _, o := range ops {
		end := int64(o.end)
		if o.unknown {
			end = math.MaxInt64
		}
		list = append(list, porcupine.Operation{ClientId: o.client, Input: o, Call: int64(o.call), Output: struct{}{}, Return: end})
	}
	switch porcupine.CheckOperationsTimeout(register, list, checkTimeout) {
	case porcupine.Ok:
		return nil
	case porcupine.Unknown:
		return fmt.Errorf("no order of %d operations was found or excluded within %v", len(ops), checkTimeout)
	default:
	}
	return errors.New("no order of its operations explains the answers")
}

// check checks the histories of all keys.
func (h *history) check() error {
	byKey := map[string][]op{}
	for _, o := range h.ops {
		byKey[o.key] = append(byKey[o.key], o)
	}
	var errs []error
	for key, ops := range byKey {
		slices.SortFunc(ops, func(a, b op) int { return int(a.call - b.call) })
		if err := linearizable(ops); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w:\n%s", key, err, excerpt(ops)))
		}
	}
	return errors.Join(errs...)
}

// excerpt returns the shortest beginning of a history that cannot be explained, or rather its end.
func excerpt(ops []op) string {
	const shown = 25
	// A beginning of a history has the operations that were called by then, those without an end as unknown.
	bad := func(n int) bool {
		var part []op
		for _, o := range ops[:n] {
			if o.end > ops[n-1].call {
				if o.what == "get" {
					continue
				}
				o.unknown, o.version = true, 0
			}
			part = append(part, o)
		}
		return linearizable(part) != nil
	}
	low, high := 1, len(ops)
	for low < high {
		if mid := (low + high) / 2; bad(mid) {
			high = mid
		} else {
			low = mid + 1
		}
	}
	var lines []string
	from := ops[max(0, high-shown)].call
	for _, o := range ops[:high] {
		if o.end >= from || o.unknown {
			lines = append(lines, "  "+o.String())
		}
	}
	return strings.Join(lines, "\n")
}
