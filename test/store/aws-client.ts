import { S3Client } from '@aws-sdk/client-s3';
import type { account } from './s3-server.ts';

// Suppress the warning about Node versions that later versions of the SDK do not support.
process.env['AWS_SDK_JS_NODE_VERSION_SUPPORT_WARNING_DISABLED'] = 'true';

/** Returns the AWS SDK's client for a store. It signs, encodes and reads independently of mgw. */
export function awsClient(endpoint: string, own: typeof account): S3Client {
  return new S3Client({
    endpoint,
    forcePathStyle: true,
    region: 'us-east-1',
    maxAttempts: 1,
    credentials: { accessKeyId: own.AWS_ACCESS_KEY_ID, secretAccessKey: own.AWS_SECRET_ACCESS_KEY },
  });
}
