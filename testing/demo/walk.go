package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"time"
)

// clusterName is the name of the tour's cluster.
const clusterName = "my-shop"

// walk is the tour of a permanent cluster.
func walk(ctx context.Context, t *tour, m *mesh, shop string) error {
	began := time.Now()
	fmt.Fprintln(t.out, t.paint("1", "Coopr: a cluster from nothing, on this machine"))
	t.say("Everything stays in one folder, %s, and on loopback addresses.", filepath.Base(m.dir))
	t.say("Press Ctrl-C at any time: the demo ends and cleans up.")

	t.chapter("Three agents become a mesh")
	t.say("Each agent is one process. There is no database and no server to install. The first one founds the mesh, and the others")
	t.say("join it with a token. They talk under TLS, with certificates that the mesh signs.")
	if err := m.start("ada", "bob", "cyd"); err != nil {
		return err
	}
	typed := []string{fmt.Sprintf("coopr-agent init --out mesh --peer %s --voters %d", m.agents[0].peer, len(m.agents)-1)}
	for i, a := range m.agents {
		token := ""
		if i > 0 {
			token = " --join-token-file mesh/voter-token"
		}
		typed = append(typed, fmt.Sprintf("coopr-agent --name %s%s … &", a.name, token))
	}
	t.commands(typed...)
	first, err := m.leader(ctx, "", len(m.agents))
	if err != nil {
		return err
	}
	if err := m.ready(ctx, "local", "shell"); err != nil {
		return err
	}
	if err := t.show(ctx, m, "members"); err != nil {
		return err
	}
	t.say("They elected %s as their leader. Every agent accepts every request.", first.name)

	t.chapter("Definitions say what can be built, and how")
	t.say("Templates, services and machines are files: see examples/shop.")
	if err := t.show(ctx, m, "import", shop); err != nil {
		return err
	}

	t.chapter("One command creates a cluster of six nodes")
	t.say("The template asks for one balancer and one store, each on its own node; the others are web servers.")
	if err := t.show(ctx, m, "cluster", "create", clusterName, "--template", "shop", "--nodes", "6", "--yes"); err != nil {
		return err
	}

	t.chapter("The shop is open")
	address, err := m.shopAddress(ctx)
	if err != nil {
		return err
	}
	if err := t.visit(ctx, address, 1); err != nil {
		return err
	}

	t.chapter("The leader is killed")
	t.commands(fmt.Sprintf("kill -9 %d   # %s", first.cmd.Process.Pid, first.name))
	killed := time.Now()
	if err := first.cmd.Process.Kill(); err != nil {
		return err
	}
	<-first.ended
	t.say("The shop has not noticed:")
	if err := t.visit(ctx, address, 2); err != nil {
		return err
	}
	second, err := m.leader(ctx, first.name, 0)
	if err != nil {
		return err
	}
	took := time.Since(killed)
	if err := m.gone(ctx, first); err != nil {
		return err
	}
	if err := t.show(ctx, m, "members"); err != nil {
		return err
	}
	t.say("%s became the leader %.1f seconds after the death of %s.", second.name, took.Seconds(), first.name)

	if err := changes(ctx, t, m, shop, address); err != nil {
		return err
	}

	t.chapter("The end: the cluster is deleted")
	if err := t.show(ctx, m, "cluster", "delete", clusterName, "--yes"); err != nil {
		return err
	}
	t.say("The same in a browser: each agent serves the console. `bin/coopr-agent --dev` prints its address (docs/console.md).")
	t.say("\n%s", t.paint("1", fmt.Sprintf("Done in %.0f seconds. README.md explains what happened, and where to read on",
		time.Since(began).Seconds())))
	return nil
}

// show prints a coopr command and runs it.
func (t *tour) show(ctx context.Context, m *mesh, args ...string) error {
	t.commands("coopr " + strings.Join(args, " "))
	return m.cli(ctx, args...)
}

// visit fetches the shop's page, which must count this visit as number n.
func (t *tour) visit(ctx context.Context, address string, n int) error {
	t.commands("curl -H 'Accept: text/plain' " + address)
	body, err := get(ctx, address)
	if err != nil {
		return err
	}
	t.quote(body)
	if want := fmt.Sprintf("visitor number %d.", n); !strings.Contains(body, want) {
		return fmt.Errorf("the shop's page does not contain %q", want)
	}
	return nil
}

func get(ctx context.Context, address string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return "", err
	}
	req.Header.Set("Accept", "text/plain")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	b, err := io.ReadAll(resp.Body)
	if err := errors.Join(err, resp.Body.Close()); err != nil {
		return "", err
	}
	if resp.StatusCode != http.StatusOK {
		return "", fmt.Errorf("GET %s: %s: %s", address, resp.Status, b)
	}
	return string(b), nil
}

// shopAddress returns the address in the cluster's link to its shop.
func (m *mesh) shopAddress(ctx context.Context) (string, error) {
	var c struct {
		Links []struct{ Label, URL string }
	}
	if err := m.query(ctx, &c, "cluster", "get", clusterName); err != nil {
		return "", err
	}
	for _, l := range c.Links {
		if l.Label == "Shop" {
			return l.URL, nil
		}
	}
	return "", fmt.Errorf("cluster %s has no link called Shop: %+v", clusterName, c.Links)
}
