package nodes

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/rpc/client"
	"github.com/coopr/coopr/testing/lab"
	"github.com/coopr/coopr/testing/site"
)

var programs = site.NewPrograms("./plugins/automator/coopr-automator-shell", "./plugins/provider/coopr-provider-hosts")

func TestMain(m *testing.M) { programs.Main(m) }

// width is the number of nodes that each tool works on at a time.
const width = 16

// tasks is the number of Coopr's tasks for each node: create, confirm, bootstrap, and the three
// actions.
const tasks = 6

// actions are executed on each node. They take hardly any time themselves.
var actions = []struct{ name, script string }{
	{"install", "#!/bin/sh -e\nmkdir -p /srv/app\necho 1.0 >/srv/app/version"},
	{"configure", "#!/bin/sh -e\necho port=8080 >/srv/app/settings"},
	{"start", "#!/bin/sh -e\ntest -s /srv/app/settings\ndate >/srv/app/started"},
}

// BenchmarkNodes prepares machines in three ways, one after the other:
//   - bare SSH: one connection for each machine, three commands;
//   - Coopr: create, confirm, bootstrap and three actions;
//   - Ansible: one play of three tasks, pipelined, without facts.
//
// It reports these metrics for each task of Coopr:
//   - over-ms/task is how much longer Coopr takes than bare SSH (median); over-ms/task-low and
//     over-ms/task-high are the smallest and the largest value;
//   - over-cpu-ms/task is how much more processor time Coopr takes, that of the machines included;
//   - agent-cpu-ms/task is the processor time of the agent and its plugins.
func BenchmarkNodes(b *testing.B) {
	for _, n := range []int{20, 200} {
		b.Run(fmt.Sprint(n), func(b *testing.B) { benchmarkNodes(b, n) })
	}
}

func benchmarkNodes(b *testing.B, n int) {
	s := bench{site.New(b, programs, site.Config{Slots: width})}
	var play func([]*lab.Machine)
	if os.Getenv("BENCH_ANSIBLE") != "no" {
		play = s.ansible()
	}
	var layers []string
	if play != nil {
		layers = append(layers, s.python())
	}
	machines := make([]*lab.Machine, n)
	begin := time.Now()
	each(machines, 4, func(i int, _ *lab.Machine) {
		machines[i] = s.Machine(lab.Spec{Name: fmt.Sprintf("m%03d", i), Layers: layers})
	})
	b.Logf("%d machines up in %.1f s", n, time.Since(begin).Seconds())
	s.define(machines)
	var bare, ours, theirs []float64
	var spent, over time.Duration
	b.ResetTimer()
	for i := range b.N {
		from := s.cpu()
		bare = append(bare, took(func() { s.bare(machines) }))
		between := s.cpu()
		ours = append(ours, took(func() { s.create(fmt.Sprint("c", i), n) }))
		to := s.cpu()
		spent += to.ours - between.ours
		over += to.all - between.all - (between.all - from.all)
		if play != nil {
			theirs = append(theirs, took(func() { play(machines) }))
		}
		b.StopTimer()
		s.check(machines)
		s.Must("cluster", "delete", fmt.Sprint("c", i), "--yes")
		b.StartTimer()
	}
	longer := make([]float64, len(ours))
	for i := range ours {
		longer[i] = (ours[i] - bare[i]) * 1000 / float64(n*tasks)
	}
	rate := func(what string, times []float64) {
		if len(times) > 0 {
			b.ReportMetric(float64(n)*60/median(times), what)
		}
	}
	rate("nodes/min", ours)
	rate("bare-nodes/min", bare)
	rate("ansible-nodes/min", theirs)
	b.ReportMetric(median(longer), "over-ms/task")
	b.ReportMetric(slices.Min(longer), "over-ms/task-low")
	b.ReportMetric(slices.Max(longer), "over-ms/task-high")
	b.ReportMetric(over.Seconds()*1000/float64(b.N*n*tasks), "over-cpu-ms/task")
	b.ReportMetric(spent.Seconds()*1000/float64(b.N*n*tasks), "agent-cpu-ms/task")
	b.Logf("seconds: bare %.2f, ours %.2f, ansible %.2f", bare, ours, theirs)
}

func took(do func()) float64 {
	begin := time.Now()
	do()
	return time.Since(begin).Seconds()
}

func median(x []float64) float64 {
	x = slices.Sorted(slices.Values(x))
	return x[len(x)/2]
}

// each calls a function for every machine, some at a time.
func each(machines []*lab.Machine, at int, do func(int, *lab.Machine)) {
	var all sync.WaitGroup
	slots := make(chan struct{}, at)
	for i, m := range machines {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			do(i, m)
		})
	}
	all.Wait()
}

type bench struct{ *site.Site }

// define makes the definitions of a cluster of all machines.
func (s bench) define(machines []*lab.Machine) {
	var text strings.Builder
	text.WriteString("providers:\n- name: p\n  providertype: hosts\n  provisioner:\n    ssh_identityfile: " + site.KeyFile +
		"\n    inventory: |\n")
	for _, m := range machines {
		text.WriteString("      " + site.Entry(m) + "\n")
	}
	text.WriteString(`hardwaretypes: [{name: h, providermap: {p: {flavor: any}}}]
imagetypes: [{name: i, providermap: {p: {image: any}}}]
clustertemplates:
- name: t
  defaults: {services: [app], provider: p, hardwaretype: h, imagetype: i}
  compatibility: {services: [app], hardwaretypes: [h], imagetypes: [i]}
services:
- name: app
  provisioner:
    actions:
`)
	for _, a := range actions {
		fmt.Fprintf(&text, "      %s: {type: shell, fields: {script: %q}}\n", a.name, a.script)
	}
	s.Define("definitions.yaml", text.String())
}

// create makes a cluster and waits for its operation's end.
func (s bench) create(name string, n int) {
	st, _, err := s.API.CreateCluster(s.Context(),
		model.CreateCluster{Name: name, ClusterTemplate: "t", NumMachines: model.Int(n), OnFailure: "leave"}, false)
	if err != nil {
		s.T.Fatal(err)
	}
	s.Await("the cluster", func() error {
		d, _, err := s.API.Operation(s.Context(), st.Operation.ID, client.Read{})
		switch {
		case err == nil && !d.Status.Ended():
			err = fmt.Errorf("it is %s", d.Status)
		case err == nil && d.Status != model.OpSucceeded:
			s.T.Errorf("it is %s: %s", d.Status, d.Message)
		}
		return err
	})
}

// check checks that the work was done.
func (s bench) check(machines []*lab.Machine) {
	for _, m := range machines {
		if out, err := m.Run(s.Context(), "/bin/sh", "-c", "cat /srv/app/version /srv/app/settings && rm -r /srv/app"); err != nil ||
			out != "1.0\nport=8080\n" {
			s.T.Fatalf("%s: %q %v", m.Name, out, err)
		}
	}
}

// bare does the work with nothing but an SSH client.
func (s bench) bare(machines []*lab.Machine) {
	each(machines, width, func(_ int, m *lab.Machine) {
		c, err := ssh.Dial("tcp", m.Addr.String()+":22", &ssh.ClientConfig{
			User: "root", Auth: []ssh.AuthMethod{ssh.PublicKeys(s.Lab.Signer())}, HostKeyCallback: ssh.FixedHostKey(m.HostKey),
		})
		if err != nil {
			s.T.Error(err)
			return
		}
		defer c.Close()
		for _, a := range actions {
			session, err := c.NewSession()
			if err == nil {
				session.Stdin = strings.NewReader(a.script)
				err = session.Run("/bin/sh -s")
			}
			if err != nil {
				s.T.Error(err)
			}
		}
	})
}

// python returns a layer with the Python that Ansible's modules need.
func (s bench) python() string {
	m := s.Machine(lab.Spec{Name: "python"})
	if _, err := m.Run(s.Context(), "/bin/sh", "-c", "apt-get -q update && apt-get -q --yes install python3"); err != nil {
		s.T.Fatal(err)
	}
	dir := filepath.Join(s.T.TempDir(), "python")
	if err := m.Crash(); err != nil {
		s.T.Fatal(err)
	}
	if err := m.Save(dir); err != nil {
		s.T.Fatal(err)
	}
	if err := m.Destroy(); err != nil {
		s.T.Fatal(err)
	}
	return dir
}

// ansible returns a function that does the work with Ansible, or nil where it is not installed.
func (s bench) ansible() func([]*lab.Machine) {
	program, err := exec.LookPath("ansible-playbook")
	if err != nil {
		s.T.Log("without Ansible: apt-get install ansible-core")
		return nil
	}
	return func(machines []*lab.Machine) {
		dir := s.T.TempDir()
		var hosts, known, play strings.Builder
		for _, m := range machines {
			fmt.Fprintln(&hosts, m.Addr)
			fmt.Fprintf(&known, "%s %s", m.Addr, ssh.MarshalAuthorizedKey(m.HostKey))
		}
		play.WriteString("- hosts: all\n  gather_facts: false\n  remote_user: root\n  tasks:\n")
		for _, a := range actions {
			fmt.Fprintf(&play, "    - {name: %s, shell: %q}\n", a.name, a.script)
		}
		for name, text := range map[string]string{"hosts": hosts.String(), "known": known.String(), "play.yml": play.String(),
			"key": string(s.Lab.Key())} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				s.T.Fatal(err)
			}
		}
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Minute)
		defer cancel()
		cmd := exec.CommandContext(ctx, program, "--inventory", "hosts", "--private-key", "key", "--forks", fmt.Sprint(width), "play.yml")
		cmd.Dir = dir
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "LANG=C.UTF-8", "ANSIBLE_PIPELINING=1",
			"ANSIBLE_SSH_ARGS=-o ControlMaster=auto -o ControlPersist=60s -o UserKnownHostsFile=" + filepath.Join(dir, "known")}
		if out, err := cmd.CombinedOutput(); err != nil {
			s.T.Fatalf("ansible: %v\n%s", err, out[max(0, len(out)-2000):])
		}
	}
}

// cpu returns the processor time of the arena's processes so far: in total, including machines and
// this process, and of the agent with its plugins.
func (s bench) cpu() (c struct{ all, ours time.Duration }) {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, file := range stats {
		b, err := os.ReadFile(file)
		_, rest, ok := strings.Cut(string(b), ") ")
		if err != nil || !ok {
			continue // it has ended
		}
		used := func(fields ...int) (d time.Duration) {
			for _, i := range fields {
				ticks, _ := strconv.Atoi(strings.Fields(rest)[i])
				d += time.Duration(ticks) * time.Second / 100
			}
			return d
		}
		// Its own, and that of its children that have ended.
		c.all += used(11, 12, 13, 14)
		if to, err := os.Readlink(filepath.Join(filepath.Dir(file), "exe")); err == nil && filepath.Dir(to) == s.Bin {
			c.ours += used(11, 12)
		}
	}
	return c
}
