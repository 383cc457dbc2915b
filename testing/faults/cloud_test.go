package faults

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/plugins/provider/providertest"
	"github.com/coopr/coopr/rpc/client"
	"github.com/coopr/coopr/testing/doubles/digitalocean"
	"github.com/coopr/coopr/testing/site"
)

// TestCloud covers faults between an agent and a cloud, from the request to the script on the
// machine. Each fault has an account and a cluster of its own. The cloud is simulated
// (testing/doubles/digitalocean); its machines have real SSH.
func TestCloud(t *testing.T) {
	s := site.New(t, programs, site.Config{})
	for name, x := range map[string]struct {
		trouble  []providertest.Trouble
		fields   map[string]any
		late     bool                  // what was lost is carried out in the end
		ends     model.OperationStatus // of the creation
		attempts int                   // of CREATE, at least
		says     string                // the first task that failed, or tried again
	}{
		"answer-lost": {trouble: []providertest.Trouble{providertest.Lost}, ends: model.OpSucceeded, attempts: 2, says: "EOF"},
		"done-later":  {trouble: []providertest.Trouble{providertest.Late}, late: true, ends: model.OpSucceeded, attempts: 2, says: "EOF"},
		"quota":       {trouble: []providertest.Trouble{digitalocean.Quota}, ends: model.OpSucceeded, attempts: 2, says: "quota"},
		"throttled":   {trouble: []providertest.Trouble{digitalocean.Throttled, digitalocean.Throttled}, ends: model.OpSucceeded, attempts: 1},
		"refused":     {trouble: []providertest.Trouble{digitalocean.Refused}, ends: model.OpFailed, attempts: 1, says: "credentials"},
		"wrong-token": {fields: map[string]any{"token": "wrong"}, ends: model.OpFailed, attempts: 1, says: "credentials"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o, account, api := inCloud(t, s, name, x.fields)
			api.Next(x.trouble...)
			tasks := o.over(o.begin().ID, x.ends)
			said, attempts := "", 0
			for _, task := range tasks {
				if task.Action == model.Create {
					attempts = task.Attempt
				}
				for _, a := range task.Attempts {
					said += a.Message + "\n"
				}
				said += task.Message + "\n"
			}
			if attempts < x.attempts || x.attempts == 1 && attempts != 1 || !strings.Contains(said, x.says) {
				t.Errorf("%d attempts said %q", attempts, said)
			}
			now, ever := account.Droplets()
			want := 1
			if x.ends == model.OpFailed {
				want = 0
			}
			if now != want || ever != want {
				t.Errorf("%d droplets, %d were made, not %d", now, ever, want)
			}
			if n := o.installed(); n != want {
				t.Errorf("installed %d times, not %d", n, want)
			}
			if x.late {
				// The request of the abandoned attempt is carried out now.
				api.Release()
				if now, _ := account.Droplets(); now != 2 {
					t.Errorf("%d droplets, nothing came late", now)
				}
				o.Await("the machine that came late to be found", func() error { return o.removeOrphan() })
				if now, _ := account.Droplets(); now != 1 {
					t.Errorf("%d droplets are left of two", now)
				}
			}
			if x.fields != nil {
				o.rents(api, nil) // nothing can be removed with wrong credentials, but with those that are right now
			}
			o.gone(account)
		})
	}
	// The provider waits for a machine that never opens SSH until the task's time-out (15 minutes);
	// the test ends it before.
	t.Run("silent", func(t *testing.T) {
		t.Parallel()
		o, account, _ := inCloud(t, s, "silent", nil)
		account.Silent = true
		op := o.begin()
		o.Await("the machine to be waited for", func() error {
			tasks, _, err := o.API.Tasks(o.Context(), op.ID, "", client.Page{}, client.Read{})
			for _, x := range tasks {
				if x.Action != model.Confirm {
					continue
				}
				if out, _ := o.Coopr("task", "log", x.ID); strings.Contains(out, "not yet: connect to 127.0.0.9") {
					return nil
				}
			}
			return errors.Join(err, errors.New("its log does not say so"))
		})
		if out, err := o.Coopr("operation", "abort", op.ID, "--yes"); err != nil {
			t.Errorf("abort: %v\n%s", err, out)
		}
		o.over(op.ID, model.OpAborted)
		if now, ever := account.Droplets(); now != 1 || ever != 1 || o.installed() != 0 {
			t.Errorf("%d droplets, %d were made, installed %d times", now, ever, o.installed())
		}
		o.gone(account)
	})
}

// inCloud returns a fault with an account of its own and a proxy that causes the trouble. The
// account exists as long as the site, because its leader asks all providers for orphans.
func inCloud(t *testing.T, s *site.Site, name string, fields map[string]any) (*one, *digitalocean.Account, *providertest.Troubled) {
	account := digitalocean.New(s.T, providertest.NewFleet(s.T))
	api := providertest.NewTroubled(s.T, account, digitalocean.Creates)
	o := &one{Site: s.For(t), name: name, folder: t.TempDir()}
	o.rents(api, fields)
	return o, account, api
}

// rents defines a fault's provider, with some fields that are not as usual.
func (o *one) rents(api *providertest.Troubled, fields map[string]any) {
	o.T.Helper()
	all := map[string]any{"token": digitalocean.Token, "region": "fra1", "endpoint": api.URL, "ssh_port": providertest.FleetPort,
		"ssh_dir": o.folder}
	maps.Copy(all, fields)
	o.defineOn("digitalocean", all, "#!/bin/sh\necho \"$COOPR_FENCE\" >>installed\n", "1m")
}

// installed counts how often the script was run on the machines of a cloud.
func (o *one) installed() int {
	b, err := os.ReadFile(filepath.Join(o.folder, "installed"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		o.T.Error(err)
	}
	return strings.Count(string(b), "\n")
}

// gone deletes the cluster: nothing is left in the cloud.
func (o *one) gone(account *digitalocean.Account) {
	o.T.Helper()
	if out, err := o.Coopr("cluster", "delete", o.name, "--yes"); err != nil {
		o.T.Errorf("delete: %v\n%s", err, out)
	}
	if now, _ := account.Droplets(); now != 0 {
		o.T.Errorf("%d droplets are left", now)
	}
}

// removeOrphan removes the one orphan of the fault's provider.
func (o *one) removeOrphan() error {
	var r model.OrphanReport
	out, err := o.Coopr("provider", "orphans", "-o", "json")
	if err == nil {
		err = json.Unmarshal([]byte(out), &r)
	}
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	for _, x := range r.Orphans {
		if x.Provider == o.name {
			if out, err := o.Coopr("provider", "orphans", "--remove", x.ID, "--yes"); err != nil {
				return fmt.Errorf("%w: %s", err, out)
			}
			return nil
		}
	}
	return errors.New("there is none: " + out)
}
