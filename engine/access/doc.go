// Package access decides who may do what. The server asks it for each request (rpc/server/rest), and the
// orchestrator asks it about each operation that it has planned. Policies are Cedar documents; grants are
// data. A Set holds both in a form that answers quickly. It is never changed: a change of rights makes a
// new Set.
//
// A request is decided by the first of these rules that applies:
//
//  1. Root may do everything.
//  2. A forbid of the mesh denies.
//  3. A forbid of the resource's tenant denies, but not to operators.
//  4. A permit of the mesh or of the tenant, or a grant, allows.
//  5. What nothing allows is denied.
//
// A forbid that fails to evaluate denies, and a permit that fails does not count. A tenant's
// policies are asked about that tenant's resources only.
package access
