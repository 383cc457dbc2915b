package runs

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/problem"
	"github.com/coopr/coopr/engine/profile"
	pb "github.com/coopr/coopr/rpc/proto"
)

// TestSecretIsAskedForAgain starts runs that set a property to a secret. A run whose user may not use the
// secret any more when its cluster is made fails, and nothing was made. A run that lost the right later is
// torn down all the same.
func TestSecretIsAskedForAgain(t *testing.T) {
	for _, when := range []string{"never", "before", "while it runs", "the token is revoked"} {
		synctest.Test(t, func(t *testing.T) {
			l := newLab(t)
			l.jobs.takes = time.Minute
			me := model.Caller{Tenant: "t", Actor: "me", Role: model.RoleUser}
			share := func(users ...string) {
				l.put("secret", "key", profile.Secret{Value: model.NewSecret("value"), UsableBy: users})
			}
			l.put("profile", "p", profile.Profile{Name: "p", Provisioner: profile.Provisioner{Name: "cloud",
				Properties: []profile.Property{{Name: "x", Value: "plain"}}}})
			share("me")
			asked := Start{Inline: &profile.Program{Name: "job", Steps: []profile.Step{{Script: "true\n"}}}, Profile: "p",
				Runtime: map[string]string{profile.PropertyPrefix + "x": "${secure(key)}"}}
			x, err := Prepare(l.m.View(), me, asked, time.Now(), 1)
			if err != nil {
				t.Fatal(err)
			}
			if x.Run.Program.Author != "me" {
				t.Errorf("the program's author is %q", x.Run.Program.Author)
			}
			c, err := x.Command(me, nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			id := l.apply(c)[0].Subject
			switch when {
			case "before":
				share("somebody")
			case "the token is revoked":
				l.apply(&pb.Command{Actor: "root", Change: &pb.Command_DeleteToken{DeleteToken: &pb.DeleteToken{Id: "mine"}}})
			}
			l.lead()
			defer func() { l.stop() }()
			if when == "while it runs" {
				l.until(id, func(r *profile.Run) bool { return r.Status == profile.Running })
				share()
			}
			r := l.until(id, over)
			refused := when == "before" || when == "the token is revoked"
			if refused != (r.Status == profile.Failed) || refused != strings.Contains(r.Message, `me may not use the secret "key"`) {
				t.Errorf("%s: the run is %s: %s", when, r.Status, r.Message)
			}
			if made := l.cloud.made; refused != (made == 0) || len(l.cloud.there) > 0 {
				t.Errorf("%s: %d clusters were made, and %d are left", when, made, len(l.cloud.there))
			}
			if refused {
				if _, err := Prepare(l.m.View(), model.Caller{Tenant: "t", Actor: "other", Role: model.RoleUser}, asked, time.Now(), 2); err == nil {
					t.Error("a user who may not use the secret started a run with it")
				}
			}
		})
	}
}

// TestSecretsAreNotRedirected lets a user set the address of a provider whose password an administrator has set.
func TestSecretsAreNotRedirected(t *testing.T) {
	l := newLab(t)
	field := func(name, value string, editable bool) profile.Property {
		return profile.Property{Name: profile.PropField + name, Value: value, Editable: &editable}
	}
	address := profile.PropertyPrefix + profile.PropField + "auth_url"
	for _, c := range []struct {
		runtime  map[string]string
		editable bool
		refused  bool
	}{
		{nil, true, false},
		{map[string]string{address: "https://evil"}, true, true},
		{map[string]string{address: "https://evil"}, false, false}, // the profile's value stays
		{map[string]string{profile.PropertyPrefix + "flavor": "tiny"}, true, false},
		{map[string]string{profile.PropertyPrefix + profile.PropField + "password": "${secure(key)}"}, false, false},
		{map[string]string{profile.PropertyPrefix + "flavor": "${secure(key)}"}, true, true},
	} {
		l.put("profile", "p", profile.Profile{Name: "p", Provisioner: profile.Provisioner{Name: "cloud", Properties: []profile.Property{
			field("auth_url", "https://cloud", c.editable), field("password", "${secure(key)}", c.editable)}}})
		l.put("secret", "key", profile.Secret{Value: model.NewSecret("value"), UsableBy: []string{}})
		_, err := Prepare(l.m.View(), model.Caller{Tenant: "t", Actor: "me", Role: model.RoleUser},
			Start{Inline: &profile.Program{Name: "job", Steps: []profile.Step{{Script: "true\n"}}}, Profile: "p", Runtime: c.runtime}, time.Now(), 1)
		if refused := errors.Is(err, problem.Forbidden); refused != c.refused || err != nil && !refused {
			t.Errorf("%v, editable %v: %v", c.runtime, c.editable, err)
		}
	}
}
