import type { Job, JobFile, ProtocolName } from '../job.ts';
import type { BodyA, BodyB, BodyC } from './bodies.ts';

/** A duration: a text with its unit (`5s`, `20m`, `1h30m`), or a number of milliseconds. */
export type Duration = string | number;

/**
 * Where a client works and as whom. What is left out is read as on the command line: from the environment, then from
 * the profile of the config file, then the default.
 */
export interface ClientOptions {
  /** The address of the gateway, without /v1. */
  baseUrl?: string | undefined;
  apiKey?: string | undefined;
  /** Where jobs are kept; a program and the command line that share it share jobs, keys and budgets. */
  stateDir?: string | undefined;
  /** Where the config file is. */
  configDir?: string | undefined;
  /** The profile of the config file. */
  profile?: string | undefined;
  /** True plays on the built-in sandbox gateway: offline and free. */
  sandbox?: boolean | undefined;
  /** Accepts an http:// address that is not loopback. */
  allowHttp?: boolean | undefined;
  /** Origins that get the key for result addresses, in addition to the gateway's own site. */
  trustedOrigins?: readonly string[] | undefined;
  /** How long a call may take in all where it says nothing else; 30 minutes. */
  timeout?: Duration | undefined;
  /** The least pause between two looks at a job; 5 seconds, less only on loopback. */
  pollInterval?: Duration | undefined;
  /** The limit of one HTTP call. */
  requestTimeout?: Duration | undefined;
  /** How often a refused or unsent request is tried again; 5. */
  retries?: number | undefined;
  /** The standing budget that is spent from. */
  budgetName?: string | undefined;
  /** The variables that settings are read from; those of the process where it is left out, none for `{}`. */
  env?: Readonly<Record<string, string | undefined>> | undefined;
  /** Told what the command line would say on stderr, a line at a time; secrets are taken out. */
  onNote?: ((text: string) => void) | undefined;
}

/** What every call takes. */
export interface CallOptions {
  /**
   * Ends the call as a first Ctrl-C ends a command: nothing more is sent, what is waited for is left, and the answer to
   * what was paid for is awaited first. The job goes on, and the same call resumes it.
   */
  signal?: AbortSignal | undefined;
  /** Ends the call as a second Ctrl-C does: an answer that is outstanding is given up, and may be `submit_unknown`. */
  giveUp?: AbortSignal | undefined;
  /** How long the call may take in all. */
  timeout?: Duration | undefined;
}

/** What a call that pays takes. */
export interface PayingOptions extends CallOptions {
  /** Names the job for ever: the same key never pays twice, in any process. */
  key?: string | undefined;
  /** A deliberate second take: pays although the same was submitted before. */
  newTake?: boolean | undefined;
  /** What all runs of this very submission may cost together, as an exact decimal: `'2.50'`. */
  budget?: string | number | undefined;
}

/** Where a file goes. */
export interface OutputOptions {
  /** Replaces what stands there. */
  force?: boolean | undefined;
  /** Puts NAME.json next to each file: what was asked for, by which job, at what price, its SHA-256. */
  sidecar?: boolean | undefined;
}

/** A video of one protocol. */
export interface VideoOf<Protocol extends ProtocolName, Body> extends PayingOptions, OutputOptions {
  protocol: Protocol;
  /** The body in the protocol's own spelling. */
  body: Body;
  check?: true | undefined;
  /** Protocol C alone: which of its two equivalent paths. */
  endpoint?: 'generations' | 'videos' | undefined;
  /** True waits until the video is there, and saves nothing. */
  wait?: boolean | undefined;
  /** Waits, and saves the video as this file. */
  output?: string | undefined;
}

/** A video whose body is not checked before it is sent. */
export interface UncheckedVideo extends Omit<VideoOf<ProtocolName, object>, 'check'> {
  check: false;
}

/** A video to be submitted. */
export type VideoOrder = VideoOf<'a', BodyA> | VideoOf<'b', BodyB> | VideoOf<'c', BodyC> | UncheckedVideo;

/** A text to be spoken as a stream. */
export interface SpeechStreamOrder extends PayingOptions {
  text: string;
  /** The voice; left to the settings, else to the gateway. */
  speaker?: string | undefined;
  /** `mp3`, `wav`, `pcm`, `ogg_opus` or another format of the gateway; by the extension of the output, else MP3. */
  format?: string | undefined;
  /** Hertz; 24000. */
  sampleRate?: number | undefined;
  /** More fields of the body's `req_params`, in native spelling. */
  params?: object | undefined;
  /** False skips the local checks. */
  check?: boolean | undefined;
}

/** A text to be spoken into a file. */
export interface SpeechOrder extends SpeechStreamOrder, OutputOptions {
  output: string;
}

/** How a job is looked for and waited for. */
export interface WaitOptions extends CallOptions {
  /** Of a handle that this ledger has never seen: then the gateway is asked whether it knows it. */
  protocol?: ProtocolName | undefined;
}

/** What is fetched, and where it goes. */
export interface FetchOptions extends WaitOptions {
  /** A file, a folder, or a template such as `out/{id}.{ext}`; where it is left out, the file that was asked for. */
  output?: string | undefined;
  /** Replaces what stands there. */
  force?: boolean | undefined;
}

/** Which models are listed. */
export interface ModelsOptions extends CallOptions {
  /** Only models of this protocol. */
  protocol?: ProtocolName | undefined;
}

/** A video that was accepted, and as much more as was asked for. */
export interface Submitted {
  job: Job;
  /** The files that this call saved. */
  files: JobFile[];
  /** True if an earlier run had paid for it, and nothing was submitted. */
  resumed: boolean;
}

/** The result of a job, saved. */
export interface Fetched {
  job: Job;
  files: JobFile[];
}

/** Speech, saved. */
export interface Spoken {
  job: Job;
  file: JobFile;
  /** True if an earlier run had paid for it, and nothing was sent. */
  resumed: boolean;
}
