package model

import (
	"fmt"
	"strings"
)

// Limit is one limit of a tenant.
type Limit struct {
	// Name is the field of the tenant's document, such as "maxClusters".
	Name string
	// The noun for what is limited, in the plural.
	What string
	// Default holds for a tenant whose document has no value. 0 means that an agent's setting holds.
	Default int64
	// Bytes reports that the limit is a size.
	Bytes bool
	// Live limits are about requests. Each agent counts for itself.
	Live bool
	// Rolling limits refuse nothing: the oldest go.
	Rolling bool

	get func(*Tenant) int64
	set func(*Tenant, int64)
}

// MaxPolicies is the largest number of policies that a tenant may have.
const MaxPolicies = 500

// The limits of a tenant.
var (
	LimitClusters = number("maxClusters", "clusters", 10_000,
		func(t *Tenant) *int { return &t.MaxClusters })
	LimitNodes = number("maxNodes", "nodes", 100_000,
		func(t *Tenant) *int { return &t.MaxNodes })
	LimitOperations = number("maxOperations", "operations that run or wait", 5_000,
		func(t *Tenant) *int { return &t.MaxOperations })
	LimitRuns = number("maxRuns", "runs on record", 20_000,
		func(t *Tenant) *int { return &t.MaxRuns })
	LimitDefinitions = number("maxDefinitions", "definitions of one kind", 2_000,
		func(t *Tenant) *int { return &t.MaxDefinitions })
	LimitVersions = rolling(number("maxVersions", "versions of one definition", 50,
		func(t *Tenant) *int { return &t.MaxVersions }))
	LimitDocumentBytes = size("maxDocumentBytes", "bytes of one document", 1<<20,
		func(t *Tenant) *int64 { return &t.MaxDocumentBytes })
	LimitDefinitionBytes = size("maxDefinitionBytes", "bytes of all documents", 16<<20,
		func(t *Tenant) *int64 { return &t.MaxDefinitionBytes })
	LimitPolicies = number("maxPolicies", "policies", MaxPolicies,
		func(t *Tenant) *int { return &t.MaxPolicies })
	LimitSecrets = number("maxSecrets", "secrets", 2_000,
		func(t *Tenant) *int { return &t.MaxSecrets })
	LimitTokens = number("maxTokens", "tokens", 1_000,
		func(t *Tenant) *int { return &t.MaxTokens })
	LimitUsers = number("maxUsers", "users, with the deleted ones", 10_000,
		func(t *Tenant) *int { return &t.MaxUsers })
	LimitResources = number("maxResources", "plugin resources", MostResources,
		func(t *Tenant) *int { return &t.MaxResources })
	LimitResourceBytes = size("maxResourceBytes", "bytes of plugin resources", 0,
		func(t *Tenant) *int64 { return &t.MaxResourceBytes })
	LimitRequestIDs = rolling(number("maxRequestIds", "request ids", 100_000,
		func(t *Tenant) *int { return &t.MaxRequestIDs }))
	LimitRequests = rate("maxRequests", "requests a second at one agent", 500,
		func(t *Tenant) *int { return &t.MaxRequests })
	LimitStreams = rate("maxStreams", "readers that wait at one agent", 200,
		func(t *Tenant) *int { return &t.MaxStreams })
)

// TenantLimits lists the limits of a tenant in the order in which they are shown.
var TenantLimits = []*Limit{
	LimitClusters, LimitNodes, LimitOperations, LimitRuns, LimitDefinitions, LimitVersions, LimitDocumentBytes, LimitDefinitionBytes,
	LimitPolicies, LimitSecrets, LimitTokens, LimitUsers, LimitResources, LimitResourceBytes, LimitRequestIDs, LimitRequests,
	LimitStreams,
}

func number(name, what string, def int64, of func(*Tenant) *int) *Limit {
	return &Limit{
		Name: name, What: what, Default: def,
		get: func(t *Tenant) int64 { return int64(*of(t)) }, set: func(t *Tenant, n int64) { *of(t) = int(n) },
	}
}

func size(name, what string, def int64, of func(*Tenant) *int64) *Limit {
	return &Limit{
		Name: name, What: what, Default: def, Bytes: true,
		get: func(t *Tenant) int64 { return *of(t) }, set: func(t *Tenant, n int64) { *of(t) = n },
	}
}

func rolling(l *Limit) *Limit {
	l.Rolling = true
	return l
}

func rate(name, what string, def int64, of func(*Tenant) *int) *Limit {
	l := number(name, what, def, of)
	l.Live = true
	return l
}

// Given returns the limit in a tenant's document, or 0 if it has none.
func (l *Limit) Given(t *Tenant) int64 { return l.get(t) }

// Set sets the limit in a tenant's document.
func (l *Limit) Set(t *Tenant, n int64) { l.set(t, n) }

// Of returns the limit that holds for a tenant.
func (l *Limit) Of(t *Tenant) int64 {
	if n := l.Given(t); n > 0 {
		return n
	}
	return l.Default
}

// Flag returns the name of the limit in the command line, such as "max-clusters".
func (l *Limit) Flag() string {
	var b strings.Builder
	for _, c := range l.Name {
		if c >= 'A' && c <= 'Z' {
			b.WriteString("-" + strings.ToLower(string(c)))
		} else {
			b.WriteRune(c)
		}
	}
	return b.String()
}

// Raise returns the advice to raise the limit of a tenant.
func (l *Limit) Raise(tenant string) string {
	return fmt.Sprintf("an operator can raise %s: `coopr tenant put %s --%s N`", l.Name, tenant, l.Flag())
}

// Use is how much a tenant has of what a limit is about.
type Use struct {
	Limit string `json:"limit" doc:"The limit's name, as in the tenant's document"`
	What  string `json:"what" doc:"What is limited, or the kind of definitions"`
	Used  *int64 `json:"used,omitempty" doc:"How much the tenant has; absent if nobody counts that"`
	Max   int64  `json:"max" doc:"How much it may have; 0: there is no limit"`
	// Near is true if more than NearLimit percent are used.
	Near bool `json:"near,omitempty" doc:"More than 80 percent are used"`
}

// NearLimit is the use in percent above which there is a warning.
const NearLimit = 80

// Near reports whether so much of a limit is used that there is a warning.
func Near(used, most int64) bool { return most > 0 && used*100 > most*NearLimit }

// CountPolicies returns the number of policies in a text in Cedar. It counts the semicolons that end them, and reads
// nothing else but texts and comments, so that all builds count alike.
func CountPolicies(text string) int {
	n := 0
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case ';':
			n++
		case '"':
			for i++; i < len(text) && text[i] != '"'; i++ {
				if text[i] == '\\' {
					i++
				}
			}
		case '/':
			if strings.HasPrefix(text[i:], "//") {
				for i < len(text) && text[i] != '\n' {
					i++
				}
			}
		}
	}
	return n
}
