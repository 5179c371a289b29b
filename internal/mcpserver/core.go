package mcpserver

// addCore offers the tools to work in a sandbox, its files and logs, and
// texts to start from.
func (w *view) addCore() {
	w.addBash()
	w.addProcess()
	w.addPython()
	w.addReadFile()
	w.addWriteFile()
	w.addEditFile()
	w.addListFiles()
	w.addSearchFiles()
	w.addChanges()
	w.addPort()
	w.addStates()
	w.addAccess()
	w.addPolicy()
	w.resources()
	w.prompts()
}

// addAdmin offers the tool about sandboxes as a whole.
func (w *view) addAdmin() { w.addSandbox() }
