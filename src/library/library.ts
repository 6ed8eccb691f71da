/** What `import … from 'mgw'` gives. */
export { createClient, type Client } from './client.ts';
export type { BodyA, BodyB, BodyC } from './bodies.ts';
export type {
  CallOptions,
  ClientOptions,
  Duration,
  Fetched,
  FetchOptions,
  ModelsOptions,
  SpeechOrder,
  SpeechStreamOrder,
  Spoken,
  Submitted,
  VideoOrder,
  WaitOptions,
} from './options.ts';
export { exitCodes, MgwError, type Charged, type ErrorCode, type Retry } from '../errors.ts';
export type { Job, JobFile, JobState, ProtocolName } from '../job.ts';
export type { Model } from '../protocols/models.ts';
export { version } from '../version.ts';
