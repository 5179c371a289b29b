package api

import "encoding/json"

// UnmarshalJSON also reads the answers of earlier servers, which contain only the earlier name of
// Attached.
func (n *Network) UnmarshalJSON(data []byte) error {
	type plain Network // without this method
	if err := json.Unmarshal(data, (*plain)(n)); err != nil {
		return err
	}
	n.Attached = n.Attached || n.Linked
	n.Linked = n.Attached
	return nil
}

// UnmarshalJSON also reads the answers of earlier servers, which contain only the earlier name of
// Retained.
func (c *Changes) UnmarshalJSON(data []byte) error {
	type plain Changes
	if err := json.Unmarshal(data, (*plain)(c)); err != nil {
		return err
	}
	c.Retained = c.Retained || c.Kept
	c.Kept = c.Retained
	return nil
}

// UnmarshalJSON also reads the answers of earlier servers, which contain only the earlier name of
// Inspected.
func (k *WorkspaceKeys) UnmarshalJSON(data []byte) error {
	type plain WorkspaceKeys
	if err := json.Unmarshal(data, (*plain)(k)); err != nil {
		return err
	}
	k.Inspected = max(k.Inspected, k.Looked)
	k.Looked = k.Inspected
	return nil
}

// KeptChanges is the earlier name of RetainedChanges.
//
// Deprecated: use RetainedChanges.
type KeptChanges = RetainedChanges

// KeptList is the earlier name of RetainedList.
//
// Deprecated: use RetainedList.
type KeptList = RetainedList

// KeptRecordings is the earlier name of RetainedRecordings.
//
// Deprecated: use RetainedRecordings.
type KeptRecordings = RetainedRecordings

// KeptRecordingList is the earlier name of RetainedRecordingList.
//
// Deprecated: use RetainedRecordingList.
type KeptRecordingList = RetainedRecordingList

// Refusal is the earlier name of Denial.
//
// Deprecated: use Denial.
type Refusal = Denial
