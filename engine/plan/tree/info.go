package tree

import (
	"cmp"
	"crypto/sha1"
	"encoding/hex"
	"regexp"
	"strconv"
)

// Info is a plan in the API (docs/spec/plans.md §5). The times, in Unix milliseconds, and the operation are
// extensions of the SDK's format.
type Info struct {
	Phases   []PhaseInfo `json:"phases"`
	Errors   []string    `json:"errors"`
	Status   string      `json:"status"`
	Strategy string      `json:"strategy"`
	Started  int64       `json:"started,omitempty"`
	Ended    int64       `json:"ended,omitempty"`
	// Operation is the id of the operation that carries the plan out, or "" if there is none.
	Operation string `json:"operation,omitempty"`
}

// PhaseInfo is a phase in the API.
type PhaseInfo struct {
	ID       string     `json:"id"`
	Name     string     `json:"name"`
	Steps    []StepInfo `json:"steps"`
	Status   string     `json:"status"`
	Strategy string     `json:"strategy"`
	Started  int64      `json:"started,omitempty"`
	Ended    int64      `json:"ended,omitempty"`
	// Timeout is the longest duration of the phase, in milliseconds.
	Timeout int64 `json:"timeout,omitempty"`
}

// StepInfo is a step in the API. Its status may also be one of a pod: PAUSING, PAUSED.
type StepInfo struct {
	ID      string `json:"id"`
	Status  string `json:"status"`
	Name    string `json:"name"`
	Message string `json:"message"`
	Started int64  `json:"started,omitempty"`
	Ended   int64  `json:"ended,omitempty"`
}

// Code returns the HTTP status of the API's answer for the plan: CodeErrors if it has errors,
// CodeOK if it is complete, else CodeGoingOn.
func (i *Info) Code() int {
	switch {
	case len(i.Errors) > 0:
		return CodeErrors
	case i.Status == Complete.String():
		return CodeOK
	}
	return CodeGoingOn
}

// Info returns the plan as the API shows it.
func (v *View) Info() *Info {
	out := &Info{
		Phases: make([]PhaseInfo, len(v.Phases)), Errors: append(append([]string{}, v.Errors...), v.Failed...),
		Status: v.Status().String(), Strategy: v.Strategy.String(),
	}
	total := span{over: true}
	for p := range v.Phases {
		phase := &v.Phases[p]
		info := &out.Phases[p]
		*info = PhaseInfo{
			ID: v.PhaseID(p), Name: phase.Name, Steps: make([]StepInfo, phase.End-phase.First),
			Status: v.PhaseStatus(p).String(), Strategy: phase.Strategy.String(), Timeout: phase.Timeout,
		}
		all := span{over: true}
		for i, c := range v.steps(p) {
			name, id := v.stepName(phase.First+uint32(i)), v.StepID(p, i)
			status := cmp.Or(v.Shown[phase.First+uint32(i)], c.Status.String())
			s := StepInfo{ID: id, Status: status, Name: name, Message: "Step: " + name + " [" + id + "] with status: " + status}
			if v.Times != nil {
				s.Started, s.Ended = v.Times(phase.First + uint32(i))
			}
			if v.Skipped != nil {
				for _, what := range v.Skipped(phase.First + uint32(i)) {
					s.Message += "; not repeated: " + what + ", as its action does not have repeat: true"
				}
			}
			info.Steps[i] = s
			all.add(s.Started, s.Ended)
			total.add(s.Started, s.Ended)
		}
		info.Started, info.Ended = all.bounds()
	}
	out.Started, out.Ended = total.bounds()
	return out
}

// span tracks the first start and the last end of several parts.
type span struct {
	started, ended int64
	over           bool
}

func (s *span) add(started, ended int64) {
	if started > 0 && (s.started == 0 || started < s.started) {
		s.started = started
	}
	s.ended = max(s.ended, ended)
	s.over = s.over && ended > 0
}

func (s *span) bounds() (started, ended int64) {
	if !s.over {
		return s.started, 0
	}
	return s.started, s.ended
}

// PhaseID returns the id of a phase. It is derived from names and positions, so it is the same
// under every leader.
func (v *View) PhaseID(phase int) string { return v.id(phase, -1) }

// StepID returns the id of a phase's step, by its position in the phase.
func (v *View) StepID(phase, step int) string { return v.id(phase, step) }

// IDs returns the ids of a phase and of its step, given by its number among the steps of all phases. They are "" if there is no such step.
func (v *View) IDs(step uint32) (phaseID, stepID string) {
	for i := range v.Phases {
		if p := &v.Phases[i]; step >= p.First && step < p.End {
			return v.PhaseID(i), v.StepID(i, int(step-p.First))
		}
	}
	return "", ""
}

func (v *View) id(phase, step int) string {
	b := joined(make([]byte, 0, 128), v.Scope, v.Name, v.Phases[phase].Name)
	b = append(strconv.AppendInt(b, int64(phase), 10), ':')
	return uuid(strconv.AppendInt(b, int64(step), 10))
}

// UUID returns the id of something that has these names.
func UUID(names ...string) string { return uuid(joined(nil, names...)) }

// joined appends names so that different lists of names never give the same bytes.
func joined(b []byte, names ...string) []byte {
	for _, s := range names {
		b = append(strconv.AppendInt(b, int64(len(s)), 10), ':')
		b = append(b, s...)
	}
	return b
}

// uuid returns the UUID of version 5 of these bytes, which it overwrites.
func uuid(b []byte) string {
	h := sha1.Sum(b)
	h[6], h[8] = h[6]&0x0f|0x50, h[8]&0x3f|0x80
	b = b[:0]
	for i, from := range []int{0, 4, 6, 8, 10} {
		if i > 0 {
			b = append(b, '-')
		}
		b = hex.AppendEncode(b, h[from:[]int{4, 6, 8, 10, 16}[i]])
	}
	return string(b)
}

var idForm = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

func isID(s string) bool { return idForm.MatchString(s) }
