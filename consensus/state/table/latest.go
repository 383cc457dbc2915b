package table

import (
	"github.com/hashicorp/go-memdb"
)

// Found returns a copy of the row with a key, and whether there is one.
func Found[T any](txn *memdb.Txn, table string, args ...any) (T, bool) {
	if r := Get[T](txn, table, "id", args...); r != nil {
		return *r, true
	}
	var zero T
	return zero, false
}

// Latest returns the newest version of a definition, or nil.
func Latest(txn *memdb.Txn, tenant, kind, name string) *DefinitionRow {
	var last *DefinitionRow
	Each(txn, Definitions, "id_prefix", func(r *DefinitionRow) bool { last = r; return true }, tenant, kind, name)
	return last
}

// LatestProgram returns the newest version of a program, or nil.
func LatestProgram(txn *memdb.Txn, tenant, name string) *ProgramRow {
	var last *ProgramRow
	Each(txn, Programs, "id_prefix", func(r *ProgramRow) bool { last = r; return true }, tenant, name)
	return last
}

// Mesh returns the row of the mesh's own values. It is empty before the first is written.
func Mesh(txn *memdb.Txn) MetaRow {
	if m := Get[MetaRow](txn, Meta, "id", TheMeta); m != nil {
		return *m
	}
	return MetaRow{}
}
