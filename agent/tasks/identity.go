package tasks

import (
	"crypto/rsa"
	"crypto/x509"
	"errors"
	"fmt"
	"time"

	"github.com/coopr/coopr/consensus/keyring"
	"github.com/coopr/coopr/consensus/state"
	"github.com/coopr/coopr/consensus/state/table"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/operation"
	"github.com/coopr/coopr/engine/signing"
	pb "github.com/coopr/coopr/rpc/proto"
)

// identify adds the token that its definition asks for to a task. The token is valid for an hour at most, and not longer than the attempt
// may take. Nothing remembers it: the agent gets it with the task, as a secret in the input. A task that the mesh has no key for yet waits,
// like one whose values cannot be decrypted.
func (b *Builder) identify(v *state.View, t *pb.Task, w *operation.Work, fence uint64) error {
	if w.Identity == nil {
		return nil
	}
	if b.issuer == "" {
		return fmt.Errorf("task %s asks for a token with which it identifies itself elsewhere, but the leader's setting issuer is not set", t.Id)
	}
	now := time.Now()
	key, err := b.taskKey(v, now)
	if err != nil {
		return err
	}
	token, err := signing.Claims{
		Issuer: b.issuer, Audience: w.Identity.Audience, Subject: "coopr:" + t.Tenant + ":" + w.Subject,
		Issued: now.Unix(), NotBefore: now.Unix(), Expires: now.Add(min(w.Identity.Lifetime(), w.Timeout)).Unix(),
		ID: model.TaskID(t.Id).TokenID(fence), Tenant: t.Tenant, Cluster: t.Cluster, Node: t.Node, Operation: t.Operation,
	}.Token(key)
	if err != nil {
		return err
	}
	t.Input, t.Secrets = operation.WithIdentity(t.Input, token), append(t.Secrets, token)
	return nil
}

// taskKey returns the private half of the key that signs tokens of tasks now.
func (b *Builder) taskKey(v *state.View, now time.Time) (*rsa.PrivateKey, error) {
	k, ok := v.TaskKeys().Signing(now.UnixMilli())
	if !ok {
		return nil, fmt.Errorf("the mesh has no key for tokens of tasks yet: %w", keyring.ErrNoKey)
	}
	row, ok := v.LatestSealed("", table.TaskPrivateID(k.Number))
	if !ok {
		return nil, fmt.Errorf("the private half of key %d for tokens of tasks is missing", k.Number)
	}
	der, err := b.opener.Open(v.SealedView, row)
	if err != nil {
		return nil, fmt.Errorf("the private half of key %d for tokens of tasks: %w", k.Number, err)
	}
	private, err := x509.ParsePKCS8PrivateKey(der)
	key, isRSA := private.(*rsa.PrivateKey)
	if err == nil && !isRSA {
		err = errors.New("it is no RSA key")
	}
	if err != nil {
		return nil, fmt.Errorf("the private half of key %d for tokens of tasks: %w", k.Number, err)
	}
	return key, nil
}
