package state

import (
	"github.com/coopr/coopr/consensus/state/table"
	"github.com/coopr/coopr/engine/problem"
	"github.com/coopr/coopr/engine/signing"
	pb "github.com/coopr/coopr/rpc/proto"
)

// putTaskKey adds a key with which the mesh signs tokens of tasks. Those that no valid token needs any more end.
func (a sealed) putTaskKey(p *pb.PutTaskKey) Answer {
	next, keys := signing.TaskKey{Number: p.Number, Public: p.Public, Signs: p.SignsMs}, a.view().TaskKeys()
	latest := keys.Latest()
	if p.Number != latest.Number+1 {
		return refuse(problem.Stale, "key %d for tokens of tasks cannot follow key %d", p.Number, latest.Number)
	}
	if _, err := next.RSA(); err != nil {
		return refuse(problem.Invalid, "%v", err)
	}
	if !p.Alone && next.Signs < latest.Signs {
		return refuse(problem.Invalid, "key %d for tokens of tasks would sign before key %d does", p.Number, latest.Number)
	}
	if p.Private.GetId() != table.TaskPrivateID(p.Number) {
		return refuse(problem.Invalid, "key %d for tokens of tasks has no private half", p.Number)
	}
	if err := a.follows("", p.Private); err != nil {
		return Answer{Err: err}
	}
	first := append(keys, next).Published(a.now)[0].Number
	if p.Alone {
		first = p.Number
	}
	a.dropTaskKeys(first)
	a.putValue("", p.Private)
	a.put(table.TaskKeys, &table.TaskKeyRow{TaskKey: next, Created: a.now})
	return Answer{}
}

// dropTaskKeys removes the keys for tokens of tasks before the one with a number, with their private halves.
func (a sealed) dropTaskKeys(before uint32) {
	for _, row := range table.List[table.TaskKeyRow](a.txn, table.TaskKeys, "id") {
		if row.Number >= before {
			continue
		}
		a.drop(table.TaskKeys, row)
		if private := table.Get[table.SealedRow](a.txn, table.Sealed, "id", "", table.TaskPrivateID(row.Number), uint32(1)); private != nil {
			a.drop(table.Sealed, private)
		}
	}
}
