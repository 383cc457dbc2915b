package raftgroup

import (
	"errors"
	"io"

	"github.com/hashicorp/raft"

	"github.com/coopr/coopr/consensus/logstore"
)

// inbox passes the messages of other members on to the library, after it has dealt with two that the
// library handles badly:
//
//   - The library installs any snapshot of a leader, also one older than the member's log. The state
//     goes back, and so does the configuration: the changes that follow in the log are not read again,
//     so the member may believe for good that it has no vote. Such a snapshot comes from the last
//     attempt to replicate to a member that was removed and has been added again meanwhile.
//   - The library refuses entries if the entry before them is no longer in the log, also when the
//     member has applied it. The leader answers with a snapshot, which brings nothing new, and begins
//     again. That happens when the answer to the first entries after a snapshot is lost.
type inbox struct {
	to    chan raft.RPC
	waits *timeouts
	done  chan struct{}
	over  chan struct{} // closed when run has returned
}

func newInbox(waits *timeouts) *inbox {
	return &inbox{waits: waits, to: make(chan raft.RPC), done: make(chan struct{}), over: make(chan struct{})}
}

// Consumer returns the channel of messages for the library.
func (w *watchedTransport) Consumer() <-chan raft.RPC { return w.inbox.to }

// run passes the messages of from on until stop is called.
func (in *inbox) run(from <-chan raft.RPC, r *raft.Raft, log *logstore.Guard) {
	defer close(in.over)
	for {
		select {
		case rpc := <-from:
			switch req := rpc.Command.(type) {
			case *raft.InstallSnapshotRequest:
				if in.skip(rpc, req, func() bool { return covered(r, log, req) }) {
					continue
				}
			case *raft.AppendEntriesRequest:
				in.waits.hears(req.Term)
				rpc.Command = withoutApplied(r, log, req)
			case *raft.TimeoutNowRequest:
				if log.Abstains() {
					rpc.Respond(nil, logstore.ErrAbstains)
					continue
				}
			}
			if !in.pass(rpc) {
				refuse(rpc)
			}
		case <-in.done:
			return
		}
	}
}

// refuse answers a message that the library does not get any more. The library's transport in memory reads the
// answer to appended entries before it looks for the error.
func refuse(rpc raft.RPC) {
	var answer any
	if _, ok := rpc.Command.(*raft.AppendEntriesRequest); ok {
		answer = &raft.AppendEntriesResponse{}
	}
	rpc.Respond(answer, raft.ErrRaftShutdown)
}

// stop ends run and waits for it. It is called after the library has stopped.
func (in *inbox) stop() {
	close(in.done)
	<-in.over
}

// pass reports whether the library has taken the message.
func (in *inbox) pass(rpc raft.RPC) bool {
	select {
	case in.to <- rpc:
		return true
	case <-in.done:
		return false
	}
}

// covered reports whether a snapshot holds nothing that this member lacks: the member has applied its
// last entry, or its log has it, and then all entries before it are the leader's too.
func covered(r *raft.Raft, log raft.LogStore, req *raft.InstallSnapshotRequest) bool {
	if req.LastLogIndex <= r.AppliedIndex() {
		return true
	}
	var last raft.Log
	return log.GetLog(req.LastLogIndex, &last) == nil && last.Term == req.LastLogTerm
}

// skip answers a snapshot that is covered as installed, and reports whether the message is answered. The library
// first gets a heartbeat of the same leader. It handles one message after the other, so with the answer it has
// stored all entries that arrived before the snapshot, and covered counts them. If the library does not get the
// snapshot, the heartbeat lets it learn of the leader and of its term.
func (in *inbox) skip(rpc raft.RPC, req *raft.InstallSnapshotRequest, covered func() bool) bool {
	beat := &raft.AppendEntriesRequest{RPCHeader: req.RPCHeader, Term: req.Term}
	answer := make(chan raft.RPCResponse, 1)
	if !in.pass(raft.RPC{Command: beat, RespChan: answer}) {
		rpc.Respond(nil, raft.ErrRaftShutdown)
		return true
	}
	select {
	case a := <-answer:
		if !covered() {
			return false
		}
		resp := &raft.InstallSnapshotResponse{RPCHeader: req.RPCHeader}
		if got, ok := a.Response.(*raft.AppendEntriesResponse); ok {
			resp.Term, resp.Success = got.Term, got.Success
		}
		// The sender writes the whole snapshot before it reads the answer.
		_, err := io.Copy(io.Discard, rpc.Reader)
		rpc.Respond(resp, errors.Join(a.Error, err))
	case <-in.done:
		rpc.Respond(nil, raft.ErrRaftShutdown)
	}
	return true
}

// withoutApplied returns the message without the entries that this member has applied, if the entry
// before them is no longer in its log. Applied entries are committed, so the leader's are the same, and
// there is nothing to compare.
func withoutApplied(r *raft.Raft, log raft.LogStore, req *raft.AppendEntriesRequest) *raft.AppendEntriesRequest {
	applied := r.AppliedIndex()
	if req.PrevLogEntry == 0 || req.PrevLogEntry > applied || req.PrevLogEntry == r.LastIndex() {
		return req
	}
	var prev raft.Log
	if err := log.GetLog(req.PrevLogEntry, &prev); !errors.Is(err, raft.ErrLogNotFound) {
		return req
	}
	short := *req
	short.PrevLogEntry, short.PrevLogTerm = 0, 0
	for len(short.Entries) > 0 && short.Entries[0].Index <= applied {
		short.Entries = short.Entries[1:]
	}
	return &short
}
