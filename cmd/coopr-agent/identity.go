package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/coopr/coopr/agent/admission"
	"github.com/coopr/coopr/agent/config"
	"github.com/coopr/coopr/consensus/keyring"
	"github.com/coopr/coopr/rpc/identity"
)

// initOptions are the flags of the command init.
type initOptions struct {
	out             string
	peers           []string
	voters, workers int
	ttl             time.Duration
}

func initCommand() *cobra.Command {
	var o initOptions
	c := &cobra.Command{
		Use: "init", Short: "Create a new mesh, whose first agent this is", Args: cobra.NoArgs,
		Long: "Creates the identity of a new mesh: its CA, the key of gossip, and the root token, of which the mesh keeps only a hash.\n" +
			"The agent that starts with it is the first one. Others join with tokens of \"coopr token join\".\n\n" +
			"With --out, everything is written to a folder: the file identity, which belongs into the data directory of the first agent,\n" +
			"ca.pem, root-token, and tokens with which the other agents join as soon as the first one runs (--voters, --workers).\n" +
			"Store root-token in a safe place, as nothing can make it again, copy the rest to where it is used, and remove the folder.",
		Example: "  coopr-agent init --data-dir /var/lib/coopr\n" +
			"  coopr-agent init --out mesh --peer 10.0.0.1:55055 --voters 2",
	}
	c.Flags().StringVar(&o.out, "out", "", "folder for the files of the new mesh, in place of the data directory")
	c.Flags().StringSliceVar(&o.peers, "peer", nil, "HOST:PORT of the peer port of the first agent, for the join tokens (repeatable)")
	c.Flags().IntVar(&o.voters, "voters", 0, "how many control hosts join with the file voter-token")
	c.Flags().IntVar(&o.workers, "workers", 0, "how many workers join with the file worker-token")
	c.Flags().DurationVar(&o.ttl, "ttl", 24*time.Hour, "how long the join tokens are good")
	load := settings(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		if o.out != "" {
			return initFolder(c, o)
		}
		if o.voters+o.workers > 0 || len(o.peers) > 0 {
			return usageError{errors.New("join tokens are written to a folder: add --out, or make them with coopr token join")}
		}
		cfg, err := load()
		if err != nil {
			return err
		}
		return initHere(c, cfg)
	}
	return c
}

// initHere makes the agent of a data directory the first one of a new mesh.
func initHere(c *cobra.Command, cfg config.Config) error {
	if cfg.DataDir == "" {
		return usageError{errors.New("set data_dir, or --data-dir")}
	}
	if err := os.MkdirAll(cfg.DataDir, 0o700); err != nil {
		return err
	}
	lock, err := identity.LockDir(cfg.DataDir)
	if err != nil {
		return err
	}
	defer lock.Release()
	for _, name := range []string{"identity", "mesh-secret", "raft"} {
		if _, err := os.Stat(filepath.Join(cfg.DataDir, name)); err == nil {
			return fmt.Errorf("%s belongs to a mesh already: it has %s", cfg.DataDir, name)
		}
	}
	m, root, err := identity.Found()
	if err != nil {
		return err
	}
	if err := m.Save(cfg.DataDir); err != nil {
		return err
	}
	fmt.Fprintf(c.ErrOrStderr(), "The mesh has its identity, and this agent is its first one: start it.\n"+
		"The root token allows everything. It is shown only now:\n\n")
	fmt.Fprintln(c.OutOrStdout(), root)
	return nil
}

// initFolder writes the files of a new mesh to a folder.
func initFolder(c *cobra.Command, o initOptions) error {
	if o.voters < 0 || o.workers < 0 || o.ttl <= 0 {
		return usageError{errors.New("--voters, --workers and --ttl cannot be negative")}
	}
	if o.voters+o.workers > 0 && len(o.peers) == 0 {
		return usageError{errors.New("a join token has the address of the first agent: add --peer HOST:PORT")}
	}
	if err := os.MkdirAll(o.out, 0o700); err != nil {
		return err
	}
	if list, err := os.ReadDir(o.out); err != nil || len(list) > 0 {
		return errors.Join(fmt.Errorf("%s has to be an empty folder", o.out), err)
	}
	m, root, err := identity.Found()
	if err != nil {
		return err
	}
	files := map[string]string{"root-token": root + "\n", "ca.pem": string(m.Bundle())}
	for role, uses := range map[identity.Role]int{identity.Voter: o.voters, identity.Worker: o.workers} {
		if uses == 0 {
			continue
		}
		t, err := identity.NewJoinToken(m.CAs[0], o.peers)
		if err != nil {
			return usageError{err}
		}
		m.Birth.Tokens = append(m.Birth.Tokens, identity.BornToken{ID: t.ID(), Hash: t.Hash(), Role: role, Uses: uses,
			Expires: time.Now().Add(o.ttl)})
		files[string(role)+"-token"] = t.Text() + "\n"
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(o.out, name), []byte(content), 0o600); err != nil {
			return err
		}
	}
	if err := m.Write(filepath.Join(o.out, "identity")); err != nil {
		return err
	}
	fmt.Fprintf(c.ErrOrStderr(), "The files of the new mesh are in %s. Put the file identity into the data directory of the first agent.\n",
		o.out)
	return nil
}

// join returns the agent's credentials: those of its data directory, which the keyring opens, or those that it gets with the join token.
// It waits for a voter that admits the agent.
func join(ctx context.Context, cfg config.Config, store keyring.Store, log *slog.Logger) (out admission.Credentials, err error) {
	if cfg.Dev {
		return out, nil
	}
	if err := os.MkdirAll(cfg.DataDir, 0o700); err != nil {
		return out, err
	}
	m, err := identity.LoadMembership(cfg.DataDir)
	switch {
	case err == nil && m.Mesh != "":
		ring, err := keyring.Open(store)
		if err != nil {
			return out, err
		}
		return admission.Credentials{Membership: m}, m.Unseal(ring)
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return out, err
	}
	text, err := cfg.JoinText()
	if err != nil {
		return out, usageError{err}
	}
	if _, err := os.Stat(filepath.Join(cfg.DataDir, "raft")); m == nil && err == nil && (identity.IsJoinToken(text) || text == "") {
		if _, err := os.Stat(filepath.Join(cfg.DataDir, "mesh-secret")); err != nil {
			return out, fmt.Errorf("%s has the state of an agent, and its file identity is missing: restore it from a backup, or remove "+
				"data_dir and join with a new token", cfg.DataDir)
		}
	}
	if identity.IsJoinToken(text) {
		if _, err := os.Stat(filepath.Join(cfg.DataDir, "mesh-secret")); err == nil {
			return out, usageError{fmt.Errorf("%s belongs to an older mesh, whose agents share a secret: use another data directory", cfg.DataDir)}
		}
		t, err := identity.ParseJoinToken(text)
		if err != nil {
			return out, usageError{err}
		}
		lock, err := identity.LockDir(cfg.DataDir)
		if err != nil {
			return out, err
		}
		defer lock.Release()
		out.Membership, err = admission.Joiner{
			Dir: cfg.DataDir, Token: t, Names: cfg.APINames(), Logger: log,
		}.Join(ctx)
		return out, err
	}
	out.Secret, err = sharedSecret(cfg, text)
	return out, err
}

// sharedSecret returns the secret of an older mesh: the one in the data directory, or the one that the configuration has, which
// it then saves in the data directory.
func sharedSecret(cfg config.Config, text string) (given identity.Secret, err error) {
	if text != "" {
		if given, err = identity.ParseToken(text); err != nil {
			return given, usageError{err}
		}
	}
	kept, err := identity.LoadSecret(cfg.DataDir)
	switch {
	case errors.Is(err, fs.ErrNotExist) && given.IsZero():
		return given, usageError{errors.New("this agent belongs to no mesh: create one with coopr-agent init, set join_token_file " +
			"(coopr token join creates a token), or use --dev")}
	case errors.Is(err, fs.ErrNotExist):
		return given, identity.SaveSecret(cfg.DataDir, given)
	case err != nil:
		return kept, err
	case !given.IsZero() && given.Token() != kept.Token():
		return kept, usageError{fmt.Errorf("%s belongs to another mesh than the join token: use another data directory, or remove the token "+
			"from the configuration", cfg.DataDir)}
	}
	return kept, nil
}

func tokenCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "token", Short: "Show the root API token of an older mesh, whose agents share a secret", Args: cobra.NoArgs,
		Long: "Shows the API token that allows everything, in a mesh whose agents share a secret. A mesh that was made with coopr-agent init\n" +
			"shows its root token once and keeps only a hash of it.",
		Example: "  export COOPR_TOKEN=$(coopr-agent token --data-dir /var/lib/coopr)",
	}
	load := settings(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		cfg, err := load()
		if err != nil {
			return err
		}
		if _, err := identity.LoadMembership(cfg.DataDir); err == nil {
			return errors.New("the root token was shown by coopr-agent init, and no agent has it")
		}
		secret, err := identity.LoadSecret(cfg.DataDir)
		if err != nil {
			return err
		}
		fmt.Fprintln(c.OutOrStdout(), secret.RootToken())
		return nil
	}
	return c
}

func caCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "ca", Short: "Show the CA certificates of this agent's mesh", Args: cobra.NoArgs,
		Long: "Shows the certificates of the mesh's CAs in PEM. They are not secret: clients verify the agents' certificates with them.\n\n" +
			"Browsers refuse the Ed25519 keys of these CAs. --browser shows the certificate to import into a browser that opens the console:\n" +
			"that of a CA with a P-256 key, which signs the certificates of the agents' API, too. It changes when the CA is rotated.",
		Example: "  coopr-agent ca --data-dir /var/lib/coopr > coopr-ca.pem\n  export COOPR_CACERT=$PWD/coopr-ca.pem\n" +
			"  coopr-agent ca --data-dir /var/lib/coopr --browser > coopr-browser.crt",
	}
	browser := c.Flags().Bool("browser", false, "show the certificate that a browser has to trust")
	load := settings(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		cfg, err := load()
		if err != nil {
			return err
		}
		show := bundle
		if *browser {
			show = browserRoot
		}
		pem, err := show(cfg.DataDir)
		if err != nil {
			return err
		}
		_, err = c.OutOrStdout().Write(pem)
		return err
	}
	return c
}

// browserRoot returns the certificate (in PEM) that browsers have to trust.
func browserRoot(dir string) ([]byte, error) {
	m, err := identity.LoadMembership(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, errors.New("there are certificates for browsers only in a mesh that coopr-agent init has created, and there is no identity " +
			"of one in " + dir + ": configure http.tls_cert and http.tls_key, or check --data-dir")
	case err != nil:
		return nil, err
	case m.Mesh == "":
		return nil, errors.New("the mesh has not admitted this agent yet")
	}
	return m.BrowserRoot()
}

// bundle returns the certificates of the CAs that the agent of a data directory trusts, in PEM.
func bundle(dir string) ([]byte, error) {
	m, err := identity.LoadMembership(dir)
	switch {
	case err == nil && m.Mesh == "":
		return nil, errors.New("the mesh has not admitted this agent yet")
	case err == nil:
		return m.Bundle(), nil
	case !errors.Is(err, fs.ErrNotExist):
		return nil, err
	}
	secret, err := identity.LoadSecret(dir)
	if err != nil {
		return nil, err
	}
	return identity.CACertificate(secret)
}
