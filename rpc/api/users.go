package api

import (
	"net/http"

	"github.com/coopr/coopr/engine/model"
)

// Login asks for a session.
type Login struct {
	Tenant   string `json:"tenant" doc:"The user's tenant"`
	Method   string `json:"method,omitempty" doc:"Where the password is: local (if absent), or the name of a directory that the agents know"`
	User     string `json:"user" doc:"The user's name, as the method knows it"`
	Password string `json:"password"`
}

// BeginLogin asks for a login on the pages of an identity provider.
type BeginLogin struct {
	Tenant   string `json:"tenant" doc:"The user's tenant"`
	Method   string `json:"method" doc:"The name of the identity provider"`
	Redirect string `json:"redirect,omitempty" doc:"Where the browser comes back to: http://127.0.0.1:PORT/PATH. Without it, the login is finished by asking again and again"`
}

// LoginPrompt is what somebody needs to log in.
type LoginPrompt struct {
	Login    string `json:"login,omitempty" doc:"What finishes the login. Keep it secret"`
	URL      string `json:"url,omitempty" doc:"The page where to log in; absent if the method has passwords: POST /v1/login"`
	Code     string `json:"code,omitempty" doc:"What to type there"`
	Interval int64  `json:"interval,omitempty" doc:"How many milliseconds to wait before the login is finished, and between two attempts"`
	Lasts    int64  `json:"lasts,omitempty" doc:"For how many milliseconds the login can be finished"`
}

// FinishLogin asks for the session of a login.
type FinishLogin struct {
	Login string `json:"login" doc:"As the prompt has it"`
	State string `json:"state,omitempty" doc:"What the browser came back with"`
	Code  string `json:"code,omitempty" doc:"What the browser came back with"`
}

// FinishedLogin is a session, or nothing as long as nobody has logged in.
type FinishedLogin struct {
	Token  *IssuedToken `json:"token,omitempty" doc:"Absent as long as nobody has logged in: try again after the interval"`
	Slower bool         `json:"slower,omitempty" doc:"Whether the interval is to be five seconds longer from now on"`
}

// HTTPStatus returns the status of the answer.
func (l FinishedLogin) HTTPStatus() int {
	if l.Token == nil {
		return http.StatusAccepted
	}
	return http.StatusCreated
}

// NewUser describes a user to create.
type NewUser struct {
	Name        string     `json:"name" doc:"The user's name in logs and records. It is never given to another user"`
	Method      string     `json:"method,omitempty" enum:"local,account" doc:"How the user logs in: local (if absent), with a password; account, not at all: a program with tokens"`
	Role        model.Role `json:"role,omitempty" enum:"superadmin,admin,user,read" doc:"user if absent"`
	Groups      []string   `json:"groups,omitempty" doc:"Groups that policies name as Group::\"TENANT/NAME\"; editor and operator are built in"`
	Description string     `json:"description,omitempty"`
	Password    string     `json:"password,omitempty" doc:"12 to 1024 characters. Without one, a user with the method local cannot log in"`
}

// UserChange changes a user. Absent fields stay as they are.
type UserChange struct {
	Role        *model.Role `json:"role,omitempty" enum:"superadmin,admin,user,read"`
	Groups      *[]string   `json:"groups,omitempty" doc:"All groups of the user"`
	Description *string     `json:"description,omitempty"`
	Disabled    *bool       `json:"disabled,omitempty" doc:"A disabled user cannot log in, and its tokens are not valid"`
	Password    *string     `json:"password,omitempty" doc:"A new password, which ends the user's sessions"`
}

// NewPassword changes the password of the caller.
type NewPassword struct {
	Old string `json:"old"`
	New string `json:"new" doc:"12 to 1024 characters"`
}

// OwnToken requests a token of the caller's own.
type OwnToken struct {
	Role        model.Role `json:"role,omitempty" enum:"superadmin,admin,user,read" doc:"A role that the caller's includes; without one, the token may do what the caller may"`
	TTL         string     `json:"ttl,omitempty" doc:"How long the token is valid, such as 12h or 30d; 30 days if absent, 366 days at most"`
	Description string     `json:"description,omitempty" doc:"What the token is for"`
	Sources     []string   `json:"sources,omitempty" doc:"IP networks and addresses from which alone the token can be used, such as 10.0.0.0/8; at most 32"`
}

// NewGrant shares a resource.
type NewGrant struct {
	To       string   `json:"to" doc:"A user's or service account's name, or group/NAME"`
	Actions  []string `json:"actions" doc:"What is shared: read, operate, update, delete, label, use, execute, approve. Reading is shared with everything else"`
	Resource string   `json:"resource" doc:"TYPE/NAME, such as cluster/shop"`
	TTL      string   `json:"ttl,omitempty" doc:"How long the grant counts, such as 2h or 7d; without end if absent"`
}
