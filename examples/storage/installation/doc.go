// Package installation builds the site of case C11 (docs/spec/changes.md): a storage
// installation of many servers in pairs with 50 objects each, whose cluster stacks,
// targets and roles depend on each other across servers.
package installation
