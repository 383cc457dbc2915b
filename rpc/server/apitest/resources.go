package apitest

import (
	"context"

	"github.com/coopr/coopr/agent/blobs"
	"github.com/coopr/coopr/agent/member"
	"github.com/coopr/coopr/engine/model"
	pb "github.com/coopr/coopr/rpc/proto"
	"github.com/coopr/coopr/rpc/proto/record"
	"github.com/coopr/coopr/testing/doubles/logtest"
)

// StoreResources makes the agent store resources for plugins of these types in dir. A resource may
// have at most most bytes, and all resources of a tenant together at most all.
func (a *Agent) StoreResources(dir string, most, all int64, types ...model.PluginType) {
	store := blobs.OpenStore(dir, nil, func() bool { return true })
	open := &pb.OpenSession{Session: "blobs", Agent: id("blobs"), Record: &record.Agent{Id: id("blobs")}}
	for _, t := range types {
		open.Types = append(open.Types, logtest.PluginType(t))
	}
	a.Must(&pb.Command{Change: &pb.Command_OpenSession{OpenSession: open}})
	a.resources.Blobs, a.resources.MaxSize, a.resources.MaxTotal = contents{store}, most, all
}

// contents are the contents of plugin resources on the disk of an agent; the store is nil if it has none.
type contents struct{ store *blobs.Store }

// Store returns the contents on disk.
func (c contents) Store() (*blobs.Store, error) {
	if c.store == nil {
		return nil, blobs.ErrNoDisk
	}
	return c.store, nil
}

// Replicate does nothing, because there is no other voter.
func (contents) Replicate(context.Context, *member.Member, string, int64) error { return nil }

// Content opens content.
func (c contents) Content(_ context.Context, p model.ResourcePin) (*blobs.Content, error) {
	s, err := c.Store()
	if err != nil {
		return nil, err
	}
	return s.Open(p.SHA256)
}
