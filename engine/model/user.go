package model

import (
	"slices"
	"strings"
)

// Role is the set of rights of a token's holder within its tenant.
type Role string

// The roles, from the most rights to the fewest. A superadmin acts in every tenant and alone
// controls the mesh itself.
const (
	RoleSuperadmin Role = "superadmin"
	RoleAdmin      Role = "admin"
	RoleUser       Role = "user"
	RoleRead       Role = "read"
)

// Roles are all roles, the one with the most rights first.
var Roles = []Role{RoleSuperadmin, RoleAdmin, RoleUser, RoleRead}

// AtLeast reports whether a role includes another. The empty role includes none.
func (r Role) AtLeast(need Role) bool {
	i := slices.Index(Roles, r)
	return i >= 0 && i <= slices.Index(Roles, need)
}

// Token is the record of a token. The token itself is shown once, when it is made.
type Token struct {
	ID      string `json:"id"`
	Actor   string `json:"actor"`
	Tenant  string `json:"tenant"`
	Role    Role   `json:"role"`
	Created int64  `json:"created"`
	// Session is set for a token that a login made.
	Session bool `json:"session,omitempty"`
	// Parent is the id of the token that made this one.
	Parent string `json:"parent,omitempty"`
	// Expires is when the token ends; 0 means never. A session can be renewed until Renewable.
	Expires     int64  `json:"expires,omitempty"`
	Renewable   int64  `json:"renewable,omitempty"`
	Description string `json:"description,omitempty"`
	// Sources are the IP networks from which the token can be used; from anywhere without any. A child's are within those of its maker.
	Sources []string `json:"sources,omitempty" doc:"The IP networks from which the token can be used; absent: from anywhere"`
	// Used is when the token was last used, rounded down to the hour. It is written some time after the use.
	Used int64 `json:"used,omitempty" doc:"The hour in which the token was last used, in Unix milliseconds; absent: no use is on record"`
}

// Hour returns a time in Unix milliseconds rounded down to the hour.
func Hour(at int64) int64 { return at - at%hour }

// hour is an hour in milliseconds.
const hour = 3_600_000

// Methods by which users authenticate. Every other method is the name of a directory that the agents' configuration has.
const (
	MethodLocal   = "local"   // with a password that the mesh keeps a hash of
	MethodAccount = "account" // not at all: the user is a program, which has tokens
)

// reserved are the names under which the mesh itself and its operators appear in records.
var reserved = []string{"root", Self, "system", "dev"}

// Reserved reports whether nobody may have a name, in any spelling, since records use it for the mesh itself.
func Reserved(name string) bool {
	return slices.ContainsFunc(reserved, func(r string) bool { return strings.EqualFold(r, name) })
}

// User is a person or a program that has tokens. Its name is its identity in records: it belongs to nobody else, even after
// the user was deleted.
type User struct {
	Name        string   `json:"name"`
	Tenant      string   `json:"tenant"`
	Method      string   `json:"method" doc:"How the user logs in: local, with a password; account, not at all; else the name of a directory"`
	Role        Role     `json:"role" enum:"superadmin,admin,user,read"`
	Groups      []string `json:"groups,omitempty" doc:"Groups that policies name as Group::\"TENANT/NAME\"; editor and operator are built in"`
	Description string   `json:"description,omitempty"`
	Disabled    bool     `json:"disabled,omitempty" doc:"The user cannot log in, and its tokens are not valid"`
	Created     int64    `json:"created"`
	PasswordSet int64    `json:"set,omitempty" doc:"When the present password was set"`
	Deleted     int64    `json:"deleted,omitempty"`
	Subject     string   `json:"subject,omitempty" doc:"Who the user is in its directory, such as an entryUUID. It never changes, unlike a name there"`
	Left        int64    `json:"left,omitempty" doc:"Since when the directory does not let the user in. Until it does, the user's tokens are not valid"`
}

// FromDirectory reports whether the user comes from a directory, which has its password and decides on its role and groups.
func (u *User) FromDirectory() bool { return u.Subject != "" }

// HasAccess reports whether the user may log in and its tokens are valid.
func (u *User) HasAccess() bool { return !u.Disabled && u.Deleted == 0 && u.Left == 0 }

// Grant shares a resource of a tenant with a user or a group. It counts as long as its granter may do the same without grants.
type Grant struct {
	ID       string   `json:"id"`
	Tenant   string   `json:"tenant"`
	Granter  string   `json:"granter"`
	To       string   `json:"to" doc:"user/NAME, account/NAME or group/NAME"`
	Actions  []string `json:"actions"`
	Resource string   `json:"resource" doc:"TYPE/ID, such as cluster/00000042"`
	Name     string   `json:"name,omitempty" doc:"The resource's name when it was shared"`
	Until    int64    `json:"until,omitempty" doc:"When the grant ends, in Unix milliseconds; absent: never"`
	Created  int64    `json:"created"`
}

// Ended reports whether the grant's time is over at a time in Unix milliseconds.
func (g *Grant) Ended(now int64) bool { return g.Until != 0 && g.Until <= now }

// FirstTenant is the tenant that every mesh starts with. The root token uses it
// for requests that name no tenant.
const FirstTenant = "default"

// Self is the actor of changes that the mesh makes on its own.
const Self = "coopr"

// Caller is the author of a request.
type Caller struct {
	Tenant string
	Actor  string
	Role   Role
	// Request is the id of the request, or "". A request with the same id is carried out once.
	Request string
	// From is the address from which the request came, and Agent the name of the agent that the client talked to; "" if the mesh itself
	// asks.
	From, Agent string
	// Follows is set if the mesh acts by itself and in consequence of what was accepted before, such
	// as a recovery. It is not decided again whether the actor may do it.
	Follows bool
	// Root is set for the root token of the mesh, which no policy restricts.
	Root bool
	// Groups are the user's groups, as policies name them.
	Groups []string
	// Account is set for a program.
	Account bool
	// Token is the id of the token, "" for the root token. Maker is whom it acts for, if it may do less than its
	// maker; it may do what both may.
	Token string
	Maker *Caller
	// Child is set for a token that was made with another. It makes no further ones: with its user, three principals act for
	// each other at most.
	Child bool
	// Session is set for a token that a login made, and Expires is when the token ends, or 0.
	Session bool
	Expires int64
	// Sources are the networks from which the token can be used, or none, and Used is its last use on record.
	Sources []string
	Used    int64
}

// SameRights reports whether two callers have the same role and groups, and so have their makers.
func (c *Caller) SameRights(o *Caller) bool {
	if c == nil || o == nil {
		return c == o
	}
	return c.Role == o.Role && c.Root == o.Root && slices.Equal(c.Groups, o.Groups) && c.Maker.SameRights(o.Maker)
}
