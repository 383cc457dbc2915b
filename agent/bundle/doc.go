// Package bundle shows an agent's log and its inner state to operators: this agent's and, as it asks them, those of other agents.
package bundle
