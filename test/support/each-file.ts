import './with-resolvers.ts';
import { afterEach } from 'vitest';
import { cleanUp } from './clean-ups.ts';
import './equal-bytes.ts';
import { openLauncher } from './launch.ts';

// Test files that share a process load each module only once, so a hook for every test file can be set only in this
// setup file.
afterEach(cleanUp);

await openLauncher();
