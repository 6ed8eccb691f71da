import './with-resolvers.ts';
import { afterEach } from 'vitest';
import { cleanUp } from './clean-ups.ts';
import './equal-bytes.ts';
import { openLauncher } from './launch.ts';

// Test files that share a process load each module only once. Only here can a hook be set for each of them.
afterEach(cleanUp);

await openLauncher();
