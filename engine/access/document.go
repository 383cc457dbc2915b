package access

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/types"
	"github.com/cedar-policy/cedar-go/x/exp/ast"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/internal/words"
)

// The bounds on documents. A larger one is refused before it is parsed.
const (
	MaxDocument = 64 << 10          // bytes
	MaxPolicies = model.MaxPolicies // in the documents of the mesh, and in those of each tenant
	maxNesting  = 64                // of brackets
	maxNodes    = 1000              // of one policy's conditions
)

// Document is a text with policies.
type Document struct {
	Name string
	// Tenant is "" for a document of the mesh.
	Tenant string
	Text   string
}

// Known are the ids that exist, by type. Ids of other types are not checked.
type Known map[Type][]string

// Policies are those of one document, checked and ready for sets.
type Policies struct {
	of    Document
	rules []*rule
}

// Parse checks a document strictly against the schema. It costs about a millisecond for each policy,
// so that callers keep the result as long as the document stays.
func Parse(d Document, known Known) (*Policies, model.Faults) {
	var faults model.Faults
	add := func(line int, message string) {
		faults = append(faults, &model.Fault{Subject: "policies/" + d.Name, Line: line, Message: message})
	}
	if len(d.Text) > MaxDocument {
		add(0, fmt.Sprintf("has %d bytes: at most %d are allowed; split it", len(d.Text), MaxDocument))
		return nil, faults
	}
	if line := tooDeep(d.Text); line > 0 {
		add(line, fmt.Sprintf("brackets are nested more than %d deep: simplify the policy", maxNesting))
		return nil, faults
	}
	list, err := cedar.NewPolicyListFromBytes(d.Name, []byte(d.Text))
	if err != nil {
		add(0, err.Error()) // it names line and column
		return nil, faults
	}
	if len(list) > MaxPolicies {
		add(0, fmt.Sprintf("has %d policies: at most %d are allowed", len(list), MaxPolicies))
		return nil, faults
	}
	rules := make([]*rule, 0, len(list))
	names := map[string]bool{}
	for i, p := range list {
		end := len(d.Text)
		if i+1 < len(list) {
			end = list[i+1].Position().Offset
		}
		c := &checker{known: known, tenant: d.Tenant, text: d.Text[:end], start: p.Position().Offset, line: p.Position().Line, add: add}
		r := c.rule(d, i+1, p)
		if names[r.id] {
			add(r.line, fmt.Sprintf("another policy of this document has the @id %q: choose another", r.id))
		}
		names[r.id] = true
		rules = append(rules, r)
	}
	if len(faults) > 0 {
		return nil, faults
	}
	return &Policies{d, rules}, nil
}

// tooDeep returns the line of a bracket that is nested too deep, or 0. Brackets in texts and comments
// count too, which is strict and does no harm.
func tooDeep(text string) int {
	depth, line := 0, 1
	for i := range len(text) {
		switch text[i] {
		case '\n':
			line++
		case '(', '[', '{':
			if depth++; depth > maxNesting {
				return line
			}
		case ')', ']', '}':
			depth = max(0, depth-1)
		}
	}
	return 0
}

// checker checks one policy.
type checker struct {
	known  Known
	tenant string // of the document
	// text is the document up to the end of the policy, which begins at start.
	text        string
	start, line int
	add         func(line int, message string)
	failed      bool
	nodes       int
	reads       reads
}

// fault adds a fault at the first place of the policy where a word is.
func (c *checker) fault(word, message string) {
	c.failed = true
	line := c.line
	if word != "" {
		if at := regexp.MustCompile(`(^|\W)` + regexp.QuoteMeta(word) + `(\W|$)`).FindStringIndex(c.text[c.start:]); at != nil {
			line += strings.Count(c.text[c.start:c.start+at[0]+1], "\n")
		}
	}
	c.add(line, message)
}

// rule checks a policy and returns what is kept of it.
func (c *checker) rule(d Document, number int, p *cedar.Policy) *rule {
	tree := (*ast.Policy)(p.AST())
	r := &rule{document: d.Name, tenant: d.Tenant, forbid: p.Effect() == cedar.Forbid, line: c.line, tree: tree}
	r.name(d, number, p.Annotations(), c)
	c.scope(tree)
	for _, cond := range tree.Conditions {
		c.body(cond.Body)
	}
	if d.Tenant == "" {
		c.names(tree)
	}
	if c.nodes > maxNodes {
		c.fault("", fmt.Sprintf("the conditions have %d parts: at most %d are allowed", c.nodes, maxNodes))
	}
	if !c.failed {
		if err := vocab().validator.Policy("", tree); err != nil {
			for _, fault := range parts(err) {
				c.fault("", fault.Error())
			}
		}
	}
	if !c.failed {
		r.compile(c.reads)
	}
	return r
}

// parts returns the errors that the validator has joined.
func parts(err error) []error {
	var joined interface{ Unwrap() []error }
	if errors.As(err, &joined) {
		return joined.Unwrap()
	}
	return []error{err}
}

// names refuses policies of the mesh that name a user without a tenant: each tenant gives its users names of its own.
func (c *checker) names(p *ast.Policy) {
	const why = "tenants may have users of the same name: in a policy of the mesh compare principal.tenant, too"
	switch s := p.Principal.(type) {
	case ast.ScopeTypeEq:
		c.fault(string(s.Entity.ID), why)
		return
	case ast.ScopeTypeIn:
		if s.Entity.Type == types.EntityType(TypeTenant) {
			return
		}
	case ast.ScopeTypeIsIn:
		if s.Entity.Type == types.EntityType(TypeTenant) {
			return
		}
	}
	reads := c.reads.principal
	if (slices.Contains(reads, "id") || slices.Contains(reads, "name")) && !slices.Contains(reads, "tenant") {
		c.fault("principal", why)
	}
}

var annotations = []string{"id", "message", "description"}

// name sets the id and the message of a rule from its annotations.
func (r *rule) name(d Document, number int, a types.Annotations, c *checker) {
	r.id = d.Name
	if number > 1 {
		r.id = fmt.Sprintf("%s#%d", d.Name, number)
	}
	for key, value := range a {
		switch string(key) {
		case "id":
			if why := model.CheckName(string(value)); why != "" {
				c.fault("@id", "@id "+why)
			}
			r.id = d.Name
			if string(value) != d.Name {
				r.id = d.Name + "/" + string(value)
			}
		case "message":
			r.message = string(value)
		case "description":
		default:
			c.fault("@"+string(key), fmt.Sprintf("unknown annotation @%s%s", key, words.DidYouMeanOrOneOf(string(key), annotations)))
		}
	}
}

// scope checks the names in a policy's scope.
func (c *checker) scope(p *ast.Policy) {
	for _, s := range []ast.IsScopeNode{p.Principal, p.Action, p.Resource} {
		switch s := s.(type) {
		case ast.ScopeTypeEq:
			c.entity(s.Entity)
		case ast.ScopeTypeIn:
			c.entity(s.Entity)
		case ast.ScopeTypeInSet:
			for _, e := range s.Entities {
				c.entity(e)
			}
		case ast.ScopeTypeIs:
			c.typeName(s.Type)
		case ast.ScopeTypeIsIn:
			c.typeName(s.Type)
			c.entity(s.Entity)
		}
	}
}

func (c *checker) typeName(t types.EntityType) bool {
	if _, ok := vocab().Entities[t]; ok {
		return true
	}
	c.fault(string(t), fmt.Sprintf("unknown type %s%s", t, words.DidYouMean(string(t), vocab().entities)))
	return false
}

// misnamed returns "" for an id that a resource of the type can have. For others it returns what to write instead.
func (c *checker) misnamed(t Type, id string) string {
	switch t {
	case TypeCluster:
		if _, ok := model.ClusterID(id).Number(); !ok {
			return `write the cluster's id, such as "00000042"`
		}
	case TypeNode:
		if _, ok := model.NodeID(id).Cluster().Number(); !ok {
			return `write the node's id, such as "00000042-1000"`
		}
	case TypeTemplate, TypeService, TypeProvider, TypeHardwareType, TypeImageType, TypePluginType, TypePluginResource, TypeProfile,
		TypeProgram, TypeSchedule, TypeSecret, TypeSite, TypePolicy, TypeToken:
		tenant, name, ok := strings.Cut(id, "/")
		tenants, known := c.known[TypeTenant]
		switch {
		case c.tenant != "" && (!ok || tenant != c.tenant || model.CheckName(name) != ""):
			return fmt.Sprintf("write the tenant and the name, %q", c.tenant+"/NAME")
		case !ok || model.CheckName(name) != "":
			return `write the tenant and the name, "TENANT/NAME", or "/NAME" for what belongs to the mesh`
		case known && tenant != "" && !slices.Contains(tenants, tenant):
			return fmt.Sprintf("there is no tenant %q%s", tenant, words.DidYouMean(tenant, tenants))
		}
	}
	return ""
}

// entity checks an entity that a policy names.
func (c *checker) entity(e types.EntityUID) {
	if e.Type == "Action" {
		if _, ok := vocab().Actions[e]; !ok {
			c.fault(string(e.ID), fmt.Sprintf("unknown action %q%s", e.ID, words.DidYouMean(string(e.ID), vocab().actions)))
		}
		return
	}
	if !c.typeName(e.Type) {
		return
	}
	if what := c.misnamed(Type(e.Type), string(e.ID)); what != "" {
		c.fault(string(e.ID), fmt.Sprintf("nothing has the id %s::%q: %s, or compare resource.name", e.Type, e.ID, what))
		return
	}
	if ids, ok := c.known[Type(e.Type)]; ok && !slices.Contains(ids, string(e.ID)) {
		c.fault(string(e.ID), fmt.Sprintf("there is no %s %q%s", e.Type, e.ID, words.DidYouMean(string(e.ID), ids)))
	}
}
