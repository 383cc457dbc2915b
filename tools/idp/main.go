// Idp is a provider of OpenID Connect for tests, made of a certified library and its example of pages and storage. It serves
// on an address until it is killed:
//
//	idp HOST:PORT USERS
//
// USERS is a JSON file with people by name: {"ann": {"password": "…", "groups": ["devs"]}}. It is read again for each question: whoever
// is not in it any more neither logs in nor has a login renewed. The public client native comes
// back to http://127.0.0.1:…/callback or …/console/callback; the client device has the secret "words of the mesh" and the device flow.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"

	"github.com/zitadel/oidc/v3/example/server/exampleop"
	"github.com/zitadel/oidc/v3/example/server/storage"
	"github.com/zitadel/oidc/v3/pkg/oidc"
	"github.com/zitadel/oidc/v3/pkg/op"
)

type person struct {
	Password string   `json:"password"`
	Groups   []string `json:"groups"`
}

// people is the store of the example with groups.
type people struct {
	*storage.Storage
	all users
}

// SetUserinfoFromToken adds the groups to what the provider says of somebody.
func (p people) SetUserinfoFromToken(ctx context.Context, info *oidc.UserInfo, token, subject, origin string) error {
	if err := p.Storage.SetUserinfoFromToken(ctx, info, token, subject, origin); err != nil {
		return err
	}
	info.AppendClaims("groups", p.all.read()[subject].Groups)
	return nil
}

// TokenRequestByRefreshToken refuses the refresh tokens of somebody who is gone.
func (p people) TokenRequestByRefreshToken(ctx context.Context, token string) (op.RefreshTokenRequest, error) {
	r, err := p.Storage.TokenRequestByRefreshToken(ctx, token)
	if err == nil && p.all.GetUserByID(r.GetSubject()) == nil {
		return nil, fmt.Errorf("%s is gone", r.GetSubject())
	}
	return r, err
}

// users is the name of the file with people.
type users string

// read returns the people. A file that cannot be read has none.
func (u users) read() map[string]person {
	all := map[string]person{}
	text, err := os.ReadFile(string(u))
	if err == nil {
		err = json.Unmarshal(text, &all)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "idp:", err)
	}
	return all
}

func (u users) GetUserByID(name string) *storage.User {
	p, ok := u.read()[name]
	if !ok {
		return nil
	}
	return &storage.User{ID: name, Username: name, Password: p.Password}
}

func (u users) GetUserByUsername(name string) *storage.User { return u.GetUserByID(name) }

func (u users) ExampleClientID() string { return "service" }

func run(addr, file string) error {
	all := users(file)
	storage.RegisterClients(
		storage.NativeClient("native", "http://127.0.0.1/callback", "http://127.0.0.1/console/callback"),
		storage.DeviceClient("device", "words of the mesh"),
	)
	var store exampleop.Storage = people{storage.NewStorage(all), all}
	router := exampleop.SetupServer("http://"+addr+"/", store, slog.New(slog.NewTextHandler(io.Discard, nil)), false)
	return http.ListenAndServe(addr, router)
}

var _ op.Storage = people{}

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: idp HOST:PORT USERS")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "idp:", err)
		os.Exit(1)
	}
}
