package access

import (
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/cedar-policy/cedar-go"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/problem"
)

// Because is the rule by which a request was decided.
type Because string

// The rules.
const (
	ByRoot         Because = "root"
	ByMeshForbid   Because = "a forbid of the mesh"
	ByTenantForbid Because = "a forbid of the tenant"
	ByPermit       Because = "a permit"
	ByGrant        Because = "a grant"
	ByNothing      Because = "nothing allows it"
	ByChain        Because = "the chain of tokens is too long"
	ByFault        Because = "a stored policy document has faults"
)

// maxChain is the most principals that act for each other.
const maxChain = 3

// Decision is the answer to a request. Decisions share their slices, which must not be changed.
type Decision struct {
	Allowed bool
	Because Because
	// Policies are the policies that decided, and Grants the ids of the grants.
	Policies []Decider
	Grants   []string
	// Faults are the policies that failed to evaluate.
	Faults []Failure
	// Maker is set if the maker of the token was denied, and not the token.
	Maker bool
}

// Why returns why a decision denies, as a text for people.
func (d *Decision) Why() string {
	var why []string
	for _, p := range d.Policies {
		text := "policy " + p.Policy + " forbids it"
		if p.Message != "" {
			text += ": " + p.Message
		}
		why = append(why, text)
	}
	for _, f := range d.Faults {
		switch {
		case d.Because == ByFault:
			why = append(why, "until the policies are repaired, only superadmins may do anything: "+f.Message)
		case f.Forbid:
			why = append(why, fmt.Sprintf("policy %s may forbid it, but cannot be evaluated: %s", f.Policy, f.Message))
		}
	}
	if d.Because == ByNothing || len(why) == 0 {
		return "no policy allows it"
	}
	return strings.Join(why, "; ")
}

// Refusal returns the error for a caller who may not do what the text says, such as "delete cluster shop".
func (d *Decision) Refusal(who model.Caller, what string) error {
	return problem.New(problem.Forbidden, "%s, with the role %s, may not %s: %s", who.Actor, who.Role, what, d.Why())
}

// Forbidden reports whether a policy forbids what others may permit.
func (d *Decision) Forbidden() bool {
	return d.Because == ByMeshForbid || d.Because == ByTenantForbid
}

// Decider is a policy that decided.
type Decider struct {
	Policy, Tenant string
	// Message is the policy's annotation @message.
	Message string
}

// Failure is a policy that failed to evaluate. A forbid that fails denies.
type Failure struct {
	Policy, Tenant, Message string
	Forbid                  bool
}

// Decide answers a request.
func (s *Set) Decide(r *Request) Decision {
	var first Decision
	p := r.Principal
	if s.fault != nil && !p.Root && !p.in("superadmin") {
		return Decision{Because: ByFault, Faults: []Failure{{Message: s.fault.Error()}}}
	}
	for depth := 0; p != nil; depth++ {
		if depth == maxChain {
			return Decision{Because: ByChain}
		}
		d := s.remembered(p, r)
		if d.Because == ByNothing {
			if d.Grants = s.granted(p, r); len(d.Grants) > 0 {
				d.Allowed, d.Because = true, ByGrant
			}
		}
		if !d.Allowed {
			d.Maker = depth > 0
			return d
		}
		if depth == 0 {
			first = d
		}
		p = p.Maker
	}
	return first
}

// one decides for a principal without its makers, and without grants.
func (s *Set) one(p *Principal, r *Request) Decision {
	if p.Root {
		return Decision{Allowed: true, Because: ByRoot}
	}
	var e env
	forbids, theirs, permits := s.applicable(&e, p, r.Action, &r.Resource)
	e.build(p, &r.Resource, r.Action, &r.Context)
	var d Decision
	for _, c := range []struct {
		rules   []*rule
		because Because
	}{{forbids, ByMeshForbid}, {theirs, ByTenantForbid}} {
		if s.ask(&d, &e, c.rules) || len(d.Faults) > 0 {
			d.Because = c.because
			return d
		}
	}
	if s.ask(&d, &e, permits) {
		d.Allowed, d.Because = true, ByPermit
		return d
	}
	d.Because = ByNothing
	return d
}

// applicable returns the rules whose scopes a request is in: the forbids of the mesh, those of the
// tenant, and all permits. It notes in e what they read.
func (s *Set) applicable(e *env, p *Principal, a Action, x *Resource) (forbids, theirs, permits []*rule) {
	take := func(rules []*rule, denies *[]*rule, heeded bool) {
		for _, r := range rules {
			if r.forbid && !heeded || !r.fits(p) || !r.covers(x) {
				continue
			}
			if r.forbid {
				*denies = append(*denies, r)
			} else {
				permits = append(permits, r)
			}
			e.reads.join(&r.reads)
		}
	}
	take(s.cuts[cut{"", a, x.Type}], &forbids, true)
	if x.Tenant != "" {
		take(s.cuts[cut{x.Tenant, a, x.Type}], &theirs, !p.Operator())
	}
	return forbids, theirs, permits
}

// conditions are the rules whose conditions Cedar has to evaluate.
type conditions []*rule

// All returns the conditions as policies without scopes.
func (c conditions) All() iter.Seq2[cedar.PolicyID, *cedar.Policy] {
	return func(yield func(cedar.PolicyID, *cedar.Policy) bool) {
		for _, r := range c {
			if r.bare != nil && !yield(cedar.PolicyID(r.key()), r.bare) {
				return
			}
		}
	}
}

// ask evaluates rules of one effect, and reports whether one of them applies. It notes those that do
// and those that fail.
func (s *Set) ask(d *Decision, e *env, rules []*rule) (applies bool) {
	if len(rules) == 0 {
		return false
	}
	for _, r := range rules {
		if r.bare == nil {
			d.Policies = append(d.Policies, Decider{r.id, r.tenant, r.message})
			applies = true
		}
	}
	_, diag := cedar.Authorize(conditions(rules), e, e.request)
	for _, reason := range diag.Reasons {
		r := s.rules[string(reason.PolicyID)]
		d.Policies = append(d.Policies, Decider{r.id, r.tenant, r.message})
		applies = true
	}
	for _, fault := range diag.Errors {
		r := s.rules[string(fault.PolicyID)]
		d.Faults = append(d.Faults, Failure{r.id, r.tenant, fault.Message, r.forbid})
	}
	return applies
}

// granted returns the ids of the grants that allow a request.
func (s *Set) granted(p *Principal, r *Request) []string {
	var out []string
	for _, g := range s.shared(&r.Resource) {
		if g.isFor(p, r) && s.remembered(g.Granter, r).Allowed {
			out = append(out, g.ID)
		}
	}
	return out
}

// isFor reports whether a grant shares with a principal what a request asks for. Nothing is shared
// across tenants.
func (g *Grant) isFor(p *Principal, r *Request) bool {
	return g.Granter != nil && (g.Until == 0 || r.Context.Now < g.Until) && slices.Contains(g.Actions, r.Action) &&
		p.Tenant == r.Resource.Tenant && p.is(g.Grantee)
}

// is reports whether a name is that of a principal or of a group of it. A token that may do less than its maker gets
// nothing by the maker's grants.
func (p *Principal) is(who Ref) bool {
	return who == (Ref{p.Type, p.ID}) || who.Type == TypeGroup && p.in(who.ID)
}
